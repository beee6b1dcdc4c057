//! Applies the desired configuration to the configuration file and to HAProxy's structure.

use crate::apply::aside::{Asides, Refused};
use crate::apply::backlog::{Allowed, Backlog};
use crate::apply::blamed::{blamed_by_reload, blamed_of};
use crate::apply::config_file::Previous;
use crate::apply::dynamic::{self, DynamicError};
use crate::apply::file_memory::FileMemory;
use crate::apply::layout::Layout;
use crate::apply::leftovers::Leftovers;
pub use crate::apply::outcome::{Applied, ApplyError, Reload};
use crate::apply::ports::absent_anew;
use crate::apply::reload_lock;
use crate::apply::tools::Tools;
use crate::haproxy::master::ReloadError;
use crate::haproxy::socket::SocketError;
use crate::haproxy::validate::{ValidateError, validate};
use crate::plan::desired::{Desired, Distance, Problem};
use crate::plan::names;
use crate::plan::render::{Template, own_part, render};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// Applies one configuration after the other.
#[derive(Debug)]
pub struct Applier {
    tools: Tools,
    /// The structure that HAProxy runs. `None` before the first success, and after a reload that found no
    /// HAProxy.
    live: Option<(Layout, Template)>,
    generation: u64,
    leftovers: Leftovers,
    /// Problems of the last attempt that the plan does not contain.
    problems: Vec<Problem>,
    file: FileMemory,
    lacks_sections: bool,
    /// The frontends that HAProxy refused. `blamed` holds those that its last error names, with the error's
    /// text.
    asides: Asides,
    blamed: BTreeMap<String, String>,
    backlog: Backlog,
}

/// The maximum number of attempts for one configuration. Each sets aside the frontends that HAProxy refuses.
const ROUNDS: usize = 4;

/// A rendered configuration, with its inputs.
struct Next {
    desired: Desired,
    template: Template,
    /// The `default-server` settings of the head. `None` if a server that is added at run time can't have
    /// them.
    inherited: Option<String>,
    text: String,
}

async fn restore(previous: Option<Previous>) -> Result<(), ApplyError> {
    match previous {
        Some(previous) => Ok(previous.restore().await?),
        None => Ok(()),
    }
}

impl Applier {
    /// Creates an applier that knows nothing of HAProxy yet.
    pub fn new(tools: Tools) -> Self {
        Self {
            tools,
            live: None,
            generation: 0,
            leftovers: Leftovers::default(),
            problems: Vec::new(),
            file: FileMemory::default(),
            lacks_sections: false,
            asides: Asides::default(),
            blamed: BTreeMap::new(),
            backlog: Backlog::default(),
        }
    }

    /// Returns the structure in effect, or `None` if it is unknown.
    pub fn layout(&self) -> Option<&Layout> {
        self.live.as_ref().map(|(layout, _)| layout)
    }

    /// Returns the problems of the last attempt that the plan does not contain, such as a port that another
    /// program has.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the hash of the configuration in effect, or `None` if it is unknown.
    pub fn in_effect(&self) -> Option<&str> {
        self.file.in_effect.as_deref()
    }

    /// Returns how often another program has changed the configuration.
    pub fn foreign_changes(&self) -> u64 {
        self.file.foreign_changes
    }

    /// Returns the time until which a change waits, because its Service has changed often lately. `None` if
    /// none waits.
    pub fn waits_until(&self) -> Option<Instant> {
        self.backlog.waits_until()
    }

    /// Returns the time of the next attempt for a frontend that was set aside.
    pub fn next_try(&self) -> Option<Instant> {
        self.asides.next()
    }

    /// Applies the desired configuration, or leaves everything as it was. If HAProxy refuses frontends by
    /// name, sets those aside and continues with the others.
    pub async fn apply(&mut self, desired: &Desired, reload: Reload) -> Result<Applied, ApplyError> {
        let mut set = BTreeSet::new();
        for _ in 1..ROUNDS {
            let error = match self.attempt(desired, reload).await {
                Ok(applied) => return Ok(self.done(applied)),
                Err(error) => error,
            };
            let what = match &error {
                ApplyError::Validate(ValidateError::Refused(_)) => Refused::Reading,
                ApplyError::Reload(ReloadError::Refused(_) | ReloadError::Command(..)) => Refused::Loading,
                _ => return Err(error),
            };
            let named = std::mem::take(&mut self.blamed);
            // After a start, the running version of a frontend is unknown. Setting the frontend aside would
            // remove it.
            let unknown = self.live.is_none() && self.tools.file_has_any(&named)?;
            if unknown || !self.asides.set(&named, desired, what, Instant::now()) {
                // The frontends that were set aside for this error did not cause it, or not alone.
                self.asides.forget(&set);
                return Err(error);
            }
            set.extend(named.into_keys());
        }
        self.attempt(desired, reload).await.map(|applied| self.done(applied))
    }

    fn done(&mut self, applied: Applied) -> Applied {
        if applied != Applied::Postponed {
            self.asides.taken();
        }
        applied
    }

    async fn attempt(&mut self, desired: &Desired, reload: Reload) -> Result<Applied, ApplyError> {
        let tools = self.tools.clone();
        let template = tools.read_template()?;
        self.tell_of(&template);
        let old = tools.file.read()?;
        let names = &tools.policy.names;
        if !names.may_replace(old.as_deref().unwrap_or_default()) {
            let (path, copy) = (tools.file.path().to_owned(), tools.notes.original());
            return Err(ApplyError::NotOurs { path, copy, marker: names.marker() });
        }
        if self.file.look(old.as_deref()) {
            tracing::warn!(
                file = %tools.file.path().display(),
                "another program has changed the configuration; restoring it"
            );
        }
        let old_text = old.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        // A configuration that was written and never loaded is not in effect, even if it equals the desired
        // one.
        let force = reload.wanted || tools.notes.is_unloaded() || self.file.foreign;
        let known = self.live.as_ref().filter(|(_, known)| *known == template);
        let same = known.is_some_and(|(layout, _)| layout.ours && layout.desired.same_text(desired));
        if same && !force && self.backlog.owes_nothing() {
            self.backlog.clear();
            return Ok(Applied::Unchanged);
        }
        let mut desired = desired.clone();
        let live = self.live.as_ref().map(|(layout, _)| layout.desired.clone());
        self.problems = self.asides.leave_out(&mut desired, live.as_deref(), Instant::now());
        self.problems.extend(tools.leave_out(&template, &mut desired, &old_text).await);
        if let Some(address) = absent_anew(&desired, &old_text) {
            return Err(ApplyError::AbsentAddress(address));
        }
        let runs = self.live.as_ref().filter(|(layout, _)| layout.ours && !force);
        let servers = tools.runtime.is_some() && runs.is_some_and(|(_, known)| *known == template);
        let runs = runs.map(|(layout, _)| layout.desired.as_ref());
        self.backlog.hold_back(&mut desired, runs, Allowed { reload: reload.allowed, servers });
        // Usually nothing is left to do while the changes of a constantly changing Service wait.
        let runs = self.live.as_ref().filter(|(layout, known)| layout.ours && *known == template);
        let same = runs.is_some_and(|(layout, _)| layout.desired.same_text(&desired));
        if same && !force && self.backlog.waits_until().is_some() && self.backlog.owes_nothing() {
            return Ok(Applied::Unchanged);
        }
        let check = tools.check().await;
        let began = Instant::now();
        let text = render(&template, &desired, &check, tools.state_file_name().as_deref())?;
        tracing::debug!(ms = began.elapsed().as_millis(), "configuration rendered");
        self.file.rendered = Some(names::hash(&text));
        let same_bytes = old.as_deref() == Some(text.as_bytes());
        let distance = self.distance(&desired, &template, same_bytes);
        let inherited = match &distance {
            Some(Distance::Servers { .. }) => tools.inherited(&text),
            _ => None,
        };
        // The file already has the ports that the servers got at run time. A reload brings them to the rules.
        let pays = reload.allowed && self.backlog.may_pay(Instant::now());
        if same_bytes && !force && !pays && matches!(distance, None | Some(Distance::States)) {
            self.taken(desired, template, distance.is_none());
            return Ok(Applied::Unchanged);
        }
        let distance = match distance {
            Some(Distance::States) if pays => Distance::Structure,
            Some(distance) if !force => distance,
            _ => Distance::Structure,
        };
        if distance == Distance::Structure && (!reload.allowed || self.backlog.is_for_servers()) {
            return Ok(Applied::Postponed);
        }
        // Without the lock, another program's configuration that HAProxy refuses could fail this reload.
        let _lock = match &distance {
            Distance::Structure => reload_lock::take(&tools.notes).await,
            Distance::Servers { .. } | Distance::States => None,
        };
        // The same bytes were validated when they were written.
        let previous = if same_bytes { None } else { Some(self.write(old, &text, &desired).await?) };
        let next = Next { desired, template, inherited, text };
        self.load(distance, previous, next, reload.allowed).await
    }

    /// Logs the drawbacks of a template that lacks the generated sections, once for each such template.
    fn tell_of(&mut self, template: &Template) {
        let lacks = !template.has_our_sections();
        if lacks && !std::mem::replace(&mut self.lacks_sections, lacks) {
            tracing::info!(
                "the template does not include \"sections\"; setting each server's state by itself, and \
                 reloading when a node comes or goes"
            );
        }
        self.lacks_sections = lacks;
    }

    /// Validates a new version of the file and puts it in place, marked as not loaded.
    async fn write(
        &mut self,
        old: Option<Vec<u8>>,
        text: &str,
        desired: &Desired,
    ) -> Result<Previous, ApplyError> {
        let Tools { file, notes, haproxy, before, .. } = &self.tools;
        let candidate = file.prepare(text.as_bytes().to_vec()).await?;
        let began = Instant::now();
        let valid = validate(haproxy, before, candidate.path()).await;
        tracing::debug!(
            ms = began.elapsed().as_millis(),
            ok = valid.is_ok(),
            "configuration read by haproxy -c"
        );
        if let Err(ValidateError::Refused(words)) = &valid {
            self.blamed = blamed_of(words, text, &[candidate.path()], desired);
        }
        valid?;
        if let Some(old) = old.filter(|old| !old.is_empty() && !notes.has_written(&names::hash(old))) {
            notes.keep(&old)?;
        }
        notes.set_unloaded()?;
        let previous = candidate.commit().await?;
        self.file.held.clone_from(&self.file.rendered);
        Ok(previous)
    }

    /// Brings HAProxy to the content of the file, with the smallest change that suffices.
    async fn load(
        &mut self,
        distance: Distance,
        previous: Option<Previous>,
        next: Next,
        may_reload: bool,
    ) -> Result<Applied, ApplyError> {
        let applied = match distance {
            Distance::States => Applied::Rewritten,
            Distance::Servers { added, removed, .. } => match self.change(&next, &added, &removed).await {
                Ok(()) => Applied::Dynamic,
                Err(reason) if may_reload && !self.backlog.is_for_servers() => {
                    tracing::info!(%reason, "servers can't be changed at run time; reloading");
                    let _lock = reload_lock::take(&self.tools.notes).await;
                    return self.reload(previous, next).await;
                }
                Err(_) => {
                    self.file.held = None;
                    restore(previous).await?;
                    return Ok(Applied::Postponed);
                }
            },
            Distance::Structure => return self.reload(previous, next).await,
        };
        self.taken(next.desired, next.template, false);
        self.tools.notes.set_loaded();
        Ok(applied)
    }

    /// Returns the distance from the running structure to the desired one. `None` if the running one is
    /// unknown.
    fn distance(&self, desired: &Desired, template: &Template, same_bytes: bool) -> Option<Distance> {
        let (layout, live) = self.live.as_ref()?;
        let own = |desired| own_part(template, desired, &self.tools.policy.check);
        if live != template || (!same_bytes && own(&layout.desired) != own(desired)) {
            return Some(Distance::Structure);
        }
        match desired.distance(&layout.desired) {
            Distance::Servers { added, .. }
                if !template.has_our_sections() || added.iter().any(|name| self.leftovers.has(name)) =>
            {
                Some(Distance::Structure)
            }
            // An operator's template may use labels anywhere, so changed labels need a reload.
            Distance::States
                if !same_bytes && !template.has_our_sections() && !desired.same_labels(&layout.desired) =>
            {
                Some(Distance::Structure)
            }
            distance => Some(distance),
        }
    }

    async fn change(
        &mut self,
        next: &Next,
        added: &BTreeSet<String>,
        removed: &BTreeSet<String>,
    ) -> Result<(), DynamicError> {
        let inherited = match &next.inherited {
            None if !added.is_empty() => return Err(DynamicError::DefaultServer),
            inherited => inherited.as_deref().unwrap_or_default(),
        };
        let (Some(runtime), Some((layout, _))) = (&self.tools.runtime, &mut self.live) else {
            return Err(DynamicError::Version);
        };
        let began = Instant::now();
        let left = dynamic::change(
            runtime,
            &self.tools.policy.check,
            layout,
            &next.desired,
            (added, inherited),
            removed,
        )
        .await?;
        tracing::debug!(ms = began.elapsed().as_millis(), "servers changed at run time");
        for name in removed {
            if !layout.dynamic.remove(name) {
                self.leftovers.nodes.insert(name.clone());
            }
        }
        self.leftovers.servers.extend(left);
        self.backlog.owe(next.desired.other_node_ports(&layout.desired), Instant::now());
        layout.dynamic.extend(added.iter().cloned());
        Ok(())
    }

    async fn reload(
        &mut self,
        previous: Option<Previous>,
        Next { desired, template, text, .. }: Next,
    ) -> Result<Applied, ApplyError> {
        // This also applies if the bytes are the same. If nodegate-haproxy is killed now, its next run must
        // not take them for loaded.
        self.tools.notes.set_unloaded()?;
        let began = Instant::now();
        let reloaded = self.tools.reloader.reload().await;
        tracing::debug!(ms = began.elapsed().as_millis(), ok = reloaded.is_ok(), "HAProxy reloaded");
        match reloaded {
            Ok(()) => {
                self.taken(desired, template, true);
                self.tools.notes.set_loaded();
                let told = self.tools.reloader.is_somebody();
                Ok(if told { Applied::Reloaded } else { Applied::Written })
            }
            // No old process is there to continue. The next one starts with the new file, which was
            // validated. Until that process has answered and reloaded, nothing counts as in effect: it may
            // have read the old file.
            Err(ReloadError::Ask(SocketError::Absent(..))) => {
                self.live = None;
                self.generation += 1;
                self.note();
                Ok(Applied::NotRunning)
            }
            Err(error) => {
                if let ReloadError::Refused(words) | ReloadError::Command(_, words) = &error {
                    let live = self.live.as_ref().map(|(layout, _)| layout.desired.as_ref());
                    let file = self.tools.file.path();
                    self.blamed = blamed_by_reload(words, &text, file, (live, &desired));
                }
                self.file.held = None;
                restore(previous).await?;
                Err(error.into())
            }
        }
    }

    /// Records the hash of the written file, so that the next run can tell it from other programs' changes.
    fn note(&mut self) {
        if let Some(written) =
            self.file.rendered.as_ref().filter(|text| self.file.noted.as_ref() != Some(text))
        {
            self.tools.notes.set_written(written);
        }
        self.file.noted.clone_from(&self.file.rendered);
    }

    fn taken(&mut self, desired: Desired, template: Template, new_process: bool) {
        self.note();
        self.file.in_effect.clone_from(&self.file.rendered);
        let (dynamic, loaded) = match self.live.take() {
            Some((layout, _)) if !new_process => (layout.dynamic, layout.loaded),
            _ => {
                self.generation += 1;
                self.file.foreign = false;
                self.backlog.reloaded(Instant::now());
                self.leftovers = Leftovers::default();
                let weights = desired.nodes.iter().map(|node| (node.name.clone(), node.weight));
                (BTreeSet::new(), Arc::new(weights.collect()))
            }
        };
        let ours = template.has_our_sections();
        let layout =
            Layout { desired: Arc::new(desired), dynamic, loaded, ours, generation: self.generation };
        self.live = Some((layout, template));
    }

    /// Retries the deletion of servers whose connections may have ended. Returns true if some are left.
    pub async fn tidy(&mut self) -> bool {
        let Some(runtime) = &self.tools.runtime else { return false };
        self.leftovers.delete(runtime).await
    }
}
