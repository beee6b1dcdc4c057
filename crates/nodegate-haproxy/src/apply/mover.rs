//! Changes servers between ready, drain and maintenance, at once and without a reload.
//!
//! The updater remembers the last state that it set on each server, for as long as that HAProxy process
//! lives. It asks a new process for the states of its servers. If HAProxy holds another state, the updater
//! only repeats states that take a server out: a server that an operator or an agent took out stays out.

use crate::apply::config_file::{ConfigFile, FileError};
use crate::apply::layout::{Layout, StateTarget};
use crate::haproxy::socket::{Runtime, SocketError, ready_but_down};
use crate::haproxy::state_file::{Known, ServerLine, Servers, compose, parse};
use crate::plan::desired::{Desired, PlannedState};
use crate::plan::policy::HealthCheck;
use std::collections::{BTreeMap, BTreeSet};

/// An error in setting server states.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// HAProxy can't be reached.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// HAProxy did not accept a command.
    #[error("HAProxy says: {0}")]
    Refused(String),
}

/// The result of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The states that were set on servers.
    pub moved: Vec<PlannedState>,
    /// The number of servers and backends that HAProxy lacks. If there are any, it runs another configuration
    /// than expected. `None` if it was not asked.
    pub missing: Option<usize>,
}

/// Sets server states in HAProxy.
pub struct Mover {
    runtime: Option<Runtime>,
    state_file: Option<ConfigFile>,
    check: HealthCheck,
    /// The generation and the process ID of the process that got the remembered states.
    heard_by: Option<(u64, u32)>,
    said: BTreeMap<StateTarget, PlannedState>,
    /// The process that was asked last. `weights` holds the weights that it was told, or `None` for a weight
    /// that it may or may not have taken.
    asked: Option<u32>,
    weights: BTreeMap<String, Option<u16>>,
    live: Servers,
    written: Option<String>,
}

impl Mover {
    /// Creates an updater that knows nothing of HAProxy yet. Without a runtime socket it only keeps the state
    /// file.
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

    /// Sets the desired state and weight of every server.
    pub async fn round(&mut self, desired: &Desired, layout: &Layout) -> Result<Round, MoveError> {
        let Some(runtime) = self.runtime.clone() else { return Ok(Round::default()) };
        let mut round = Round::default();
        if self.heard_by.is_none_or(|(generation, _)| generation != layout.generation) {
            round.missing = Some(self.learn(&runtime, layout).await?);
        }
        // Nodes come and go between reloads, and entries of removed nodes would accumulate.
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
            // A server that was added at run time has no weight from the file.
            let from_file = !layout.dynamic.contains(&node.name);
            let loaded = || layout.loaded.get(&node.name).copied().filter(|_| from_file);
            if self.weights.get(&node.name).copied().unwrap_or_else(loaded) != Some(node.weight) {
                let backends = layout.backends_of(&node.name).chain(layout.last_resorts_of(&node.name));
                commands
                    .extend(backends.map(|b| format!("set server {b}/{} weight {}", node.name, node.weight)));
                self.weights.insert(node.name.clone(), Some(node.weight));
            }
        }
        // The servers of an operator's template are unknown, and a process may lack some servers. Then a
        // command for a server that does not exist is no error.
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
                // HAProxy may have taken some of the commands; the next round asks it.
                self.forget();
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// Returns the commands that set a state. HAProxy asks the agent only while that state is "ready",
    /// because the agent would override another one.
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

    /// Forgets the states and weights that HAProxy was told, but not that it was told weights.
    pub fn forget(&mut self) {
        self.heard_by = None;
        self.said.clear();
        self.weights.values_mut().for_each(|weight| *weight = None);
    }

    /// Asks a new process for its states. Returns how many servers and backends it lacks.
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

    /// Returns true if HAProxy asks an agent for this server. The plan does not know which servers of an
    /// operator's template have one, but HAProxy reports it.
    fn has_agent_check(&self, target: &StateTarget) -> bool {
        let line = self.live.get(&(target.backend.clone(), target.server.clone()));
        target.agent_check && self.check.agent_port.is_some() && line.is_none_or(|line| line.has_agent_check)
    }

    /// Returns the state that was set on a server, by the state that HAProxy reports, or `None` if it has to
    /// be set again. HAProxy asks an agent only while the set state is "ready". So a server that is drained
    /// while its agent is asked was drained by the agent.
    fn word_behind(&self, target: &StateTarget, line: &ServerLine) -> Option<PlannedState> {
        match (self.has_agent_check(target), line.agent_check, line.state) {
            (true, true, PlannedState::Ready | PlannedState::Drain) => Some(PlannedState::Ready),
            (true, true, PlannedState::Maint) | (true, false, PlannedState::Ready) => None,
            (_, _, state) => Some(state),
        }
    }

    /// Returns the number of backends that the process should have and does not.
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

    /// Reads the states of the servers that have their own.
    async fn read(&mut self, runtime: &Runtime, layout: &Layout) -> Result<(), MoveError> {
        let commands = if layout.ours {
            layout.desired.stateful().map(|backend| format!("show servers state {backend}")).collect()
        } else {
            vec!["show servers state".to_owned()]
        };
        self.live = parse(&runtime.ask_each(&commands).await?);
        Ok(())
    }

    /// Checks that the process is still the same and that the servers that were taken out are still out.
    /// Forgets the states that no longer hold, so that the next round sets them again. Returns true if there
    /// is something to set.
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

    /// Writes the states for the next process. With `fresh`, first asks HAProxy for the results of its
    /// checks.
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
