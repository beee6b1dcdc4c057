//! Moves servers between ready, drain and maintenance, at once and without a reload.
//!
//! What was said last to each server is remembered for as long as the process lives that heard it. A new process is
//! asked what it holds. Only what takes a server out is said again when HAProxy holds something else: a server that an
//! operator or an agent took out stays out.

use crate::apply::config_file::{ConfigFile, FileError};
use crate::apply::layout::{Layout, StateTarget};
use crate::haproxy::socket::{Runtime, SocketError, ready_but_down};
use crate::haproxy::state_file::{Known, ServerLine, Servers, compose, parse};
use crate::plan::desired::{Desired, PlannedState};
use crate::plan::policy::HealthCheck;
use std::collections::{BTreeMap, BTreeSet};

/// What keeps servers from being moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// HAProxy can't be asked.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// It does not do as it is told.
    #[error("HAProxy says: {0}")]
    Refused(String),
}

/// What a round found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The states that servers were moved to.
    pub moved: Vec<PlannedState>,
    /// Servers that HAProxy should have and does not: it runs another configuration than we believe. None if it was not
    /// asked.
    pub missing: Option<usize>,
}

/// Tells HAProxy the states of servers.
pub struct Mover {
    runtime: Option<Runtime>,
    state_file: Option<ConfigFile>,
    check: HealthCheck,
    /// Whom all that we remember was said to.
    heard_by: Option<(u64, u32)>,
    said: BTreeMap<StateTarget, PlannedState>,
    /// The process that was asked last, and the weights that it was told; none if it may have heard one or another.
    asked: Option<u32>,
    weights: BTreeMap<String, Option<u16>>,
    live: Servers,
    written: Option<String>,
}

impl Mover {
    /// Knows nothing of HAProxy yet. Without a runtime socket only the state file is kept.
    pub fn new(runtime: Option<Runtime>, state_file: Option<ConfigFile>, check: HealthCheck) -> Self {
        Self {
            runtime,
            state_file,
            check,
            heard_by: None,
            said: BTreeMap::new(),
            asked: None,
            weights: BTreeMap::new(),
            live: Servers::new(),
            written: None,
        }
    }

    /// Brings every server to its desired state.
    pub async fn round(&mut self, desired: &Desired, layout: &Layout) -> Result<Round, MoveError> {
        let Some(runtime) = self.runtime.clone() else { return Ok(Round::default()) };
        let mut round = Round::default();
        if self.heard_by.is_none_or(|(generation, _)| generation != layout.generation) {
            round.missing = Some(self.learn(&runtime, layout).await?);
        }
        // Nodes come and go for as long as no reload makes us begin anew.
        self.said.retain(|target, _| layout.desired.node(&target.server).is_some());
        self.weights.retain(|node, _| layout.desired.node(node).is_some());
        let mut commands = Vec::new();
        let mut moved = Vec::new();
        for node in desired.nodes.iter().filter(|node| layout.desired.node(&node.name).is_some()) {
            for target in layout.targets(&node.name) {
                let before = self.said.get(&target).copied();
                if before != Some(node.state) {
                    commands.extend(self.words(&target, before, node.state));
                    moved.push((target, node.state));
                }
            }
            // What was added at run time was not loaded from anywhere.
            let from_file = !layout.dynamic.contains(&node.name);
            let loaded = || layout.loaded.get(&node.name).copied().filter(|_| from_file);
            if self.weights.get(&node.name).copied().unwrap_or_else(loaded) != Some(node.weight) {
                let backends = layout.backends_of(&node.name).chain(layout.last_resorts_of(&node.name));
                commands
                    .extend(backends.map(|b| format!("set server {b}/{} weight {}", node.name, node.weight)));
                self.weights.insert(node.name.clone(), Some(node.weight));
            }
        }
        // Of a template of the operator's we don't know which servers it makes, nor those of a process that lacks some.
        let all_there = layout.ours && round.missing.is_none_or(|missing| missing == 0);
        self.tell(&runtime, &commands, all_there).await?;
        debug_assert!(
            self.said.keys().all(|target| layout.desired.node(&target.server).is_some()),
            "of no node"
        );
        round.moved = moved.iter().map(|(_, state)| *state).collect();
        self.said.extend(moved);
        Ok(round)
    }

    async fn tell(
        &mut self,
        runtime: &Runtime,
        commands: &[String],
        all_there: bool,
    ) -> Result<(), MoveError> {
        let said = runtime.tell(commands).await;
        let fault = match said {
            Ok(said) => {
                said.into_iter().find(|line| all_there || !line.contains("No such")).map(MoveError::Refused)
            }
            Err(error) => Some(error.into()),
        };
        match fault {
            Some(fault) => {
                // Some of it may have been heard; the next round asks.
                self.forget();
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// An agent would undo what we say, so it is asked only while we say "ready".
    fn words(&self, target: &StateTarget, before: Option<PlannedState>, state: PlannedState) -> Vec<String> {
        let path = target.path();
        let returns = (before, state) == (Some(PlannedState::Maint), PlannedState::Ready);
        let mut words = if target.local && returns {
            ready_but_down(&path).to_vec()
        } else {
            vec![format!("set server {path} state {}", state.word())]
        };
        if self.has_agent_check(target) {
            match state {
                PlannedState::Ready => words.push(format!("enable agent {path}")),
                PlannedState::Drain | PlannedState::Maint => words.insert(0, format!("disable agent {path}")),
            }
        }
        words
    }

    /// Everything said is void, but that it was said.
    pub fn forget(&mut self) {
        self.heard_by = None;
        self.said.clear();
        self.weights.values_mut().for_each(|weight| *weight = None);
    }

    /// Asks a process that we have not talked to yet what it holds; gives how many servers it lacks.
    async fn learn(&mut self, runtime: &Runtime, layout: &Layout) -> Result<usize, MoveError> {
        self.forget();
        let pid = runtime.worker_pid().await?.unwrap_or_default();
        if self.asked.replace(pid) != Some(pid) {
            self.weights.clear();
        }
        self.read(runtime, layout).await?;
        let mut missing = self.missing_backends(runtime, layout).await?;
        for node in &layout.desired.nodes {
            for target in layout.targets(&node.name) {
                match self.live.get(&(target.backend.clone(), target.server.clone())) {
                    Some(line) => {
                        if let Some(state) = self.word_behind(&target, line) {
                            self.said.insert(target, state);
                        }
                    }
                    None if layout.ours && target.backend == layout.desired.names.nodes() => missing += 1,
                    None => {}
                }
            }
        }
        self.heard_by = Some((layout.generation, pid));
        Ok(missing)
    }

    /// Whether an agent is asked of this server. What a template of the operator's gives its servers is not known, but
    /// HAProxy says it.
    fn has_agent_check(&self, target: &StateTarget) -> bool {
        let line = self.live.get(&(target.backend.clone(), target.server.clone()));
        target.agent_check && self.check.agent_port.is_some() && line.is_none_or(|line| line.has_agent_check)
    }

    /// What we must have said to a server that is in this state; none if it has to be said again. An agent is asked only
    /// while our word is "ready", so what is drained while its agent is asked was drained by the agent.
    fn word_behind(&self, target: &StateTarget, line: &ServerLine) -> Option<PlannedState> {
        match (self.has_agent_check(target), line.agent_check, line.state) {
            (true, true, PlannedState::Ready | PlannedState::Drain) => Some(PlannedState::Ready),
            (true, true, PlannedState::Maint) | (true, false, PlannedState::Ready) => None,
            (_, _, state) => Some(state),
        }
    }

    /// Backends that the process should have and does not.
    async fn missing_backends(&self, runtime: &Runtime, layout: &Layout) -> Result<usize, MoveError> {
        if !layout.ours {
            return Ok(0);
        }
        let answer = runtime.ask("show backend").await?;
        let there: BTreeSet<&str> = answer.lines().map(str::trim).collect();
        Ok(layout
            .desired
            .frontends
            .iter()
            .filter(|frontend| !there.contains(frontend.backend.as_str()))
            .count())
    }

    /// Reads the states of the servers that have one of their own.
    async fn read(&mut self, runtime: &Runtime, layout: &Layout) -> Result<(), MoveError> {
        let commands = if layout.ours {
            layout.desired.stateful().map(|backend| format!("show servers state {backend}")).collect()
        } else {
            vec!["show servers state".to_owned()]
        };
        self.live = parse(&runtime.ask_each(&commands).await?);
        Ok(())
    }

    /// Looks whether the process is still the same and holds what we took out; forgets what no longer holds, so that the
    /// next round says it again. True if there is something to say.
    pub async fn audit(&mut self, layout: &Layout) -> Result<bool, MoveError> {
        let (Some(runtime), Some((_, known))) = (self.runtime.clone(), self.heard_by) else {
            return Ok(true);
        };
        let pid = runtime.worker_pid().await?.unwrap_or_default();
        if pid != known {
            tracing::info!(pid, "HAProxy has a new process; reading its servers");
            self.forget();
            return Ok(true);
        }
        self.read(&runtime, layout).await?;
        let before = self.said.len();
        let live = &self.live;
        self.said.retain(|target, state| {
            let line = live.get(&(target.backend.clone(), target.server.clone()));
            *state == PlannedState::Ready || line.is_none_or(|line| line.state == *state)
        });
        let lost = before - self.said.len();
        if lost > 0 {
            tracing::warn!(servers = lost, "servers that were taken out are back; taking them out again");
        }
        Ok(lost > 0)
    }

    /// Writes the states for the next process. With `fresh`, HAProxy is asked first what its checks found.
    pub async fn save(&mut self, desired: &Desired, layout: &Layout, fresh: bool) -> Result<(), FileError> {
        let Some(file) = self.state_file.clone() else { return Ok(()) };
        if let (true, Some(runtime)) = (fresh, self.runtime.clone())
            && let Err(error) = self.read(&runtime, layout).await
        {
            tracing::debug!(%error, "can't read the states of servers; saving the last known ones");
        }
        let known = Known { live: &self.live, ours: layout.ours, asked: self.runtime.is_some() };
        let text = compose(desired, &known, &self.check);
        if self.written.as_ref() == Some(&text) {
            return Ok(());
        }
        file.replace(text.clone().into_bytes()).await?;
        self.written = Some(text);
        Ok(())
    }
}
