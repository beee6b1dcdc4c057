//! Brings the configuration file and HAProxy's structure to what is desired.

use crate::apply::aside::{Asides, Refused};
use crate::apply::config_file::{FileError, Previous};
use crate::apply::dynamic::{self, DynamicError};
use crate::apply::layout::Layout;
use crate::apply::pace::{Paces, ServiceKey};
use crate::apply::tools::{TemplateError, Tools};
use crate::haproxy::blame::{Words, blamed};
use crate::haproxy::master::ReloadError;
use crate::haproxy::socket::AskError;
use crate::haproxy::validate::{ValidateError, validate};
use crate::plan::desired::{Desired, Distance, Frontend, Problem};
use crate::plan::names;
use crate::plan::render::{RenderError, Template, own_part, render};
use crate::plan::stand_in::keeping;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::time::Instant;

/// Whether HAProxy is to read its configuration again.
#[derive(Clone, Copy, Debug)]
pub struct Reload {
    /// Even if nothing has changed.
    pub wanted: bool,
    /// Now; what needs one is postponed otherwise.
    pub allowed: bool,
}

impl Reload {
    /// If it takes one.
    pub const IF_NEEDED: Self = Self { wanted: false, allowed: true };
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    Unchanged,
    /// A new file, and nothing for HAProxy to do.
    Rewritten,
    /// A new file, and servers changed at run time.
    Dynamic,
    /// A new file and a reload.
    Reloaded,
    /// A new file; nobody is there to tell HAProxy of it.
    Written,
    /// A new file; no HAProxy runs that could read it.
    NotRunning,
    /// Nothing yet: it takes a reload, and none is allowed now.
    Postponed,
}

/// Why the configuration in effect is still the old one.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The template can't be read.
    #[error(transparent)]
    ReadTemplate(#[from] TemplateError),
    /// The template does not work.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is somebody else's.
    #[error(
        "{path} is not nodegate-haproxy's and stays as it is. Name another file with --config, which HAProxy loads beside it; \
         or have all of it replaced by putting this line on top of it (a copy is kept in {copy}): {marker}"
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Where a copy of it would be kept.
        copy: PathBuf,
        /// The line that makes it ours.
        marker: String,
    },
    /// HAProxy can't read it.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// HAProxy did not take it.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

impl ApplyError {
    /// The value of a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReadTemplate(_) | Self::Render(_) => "template",
            Self::File(_) => "file",
            Self::NotOurs { .. } => "not-ours",
            Self::Validate(_) => "validate",
            Self::Reload(_) => "reload",
        }
    }
}

/// Applies one configuration after the other.
#[derive(Debug)]
pub struct Applier {
    tools: Tools,
    /// What HAProxy runs; none before the first success, or when its process is not the one that we knew.
    live: Option<(Layout, Template)>,
    generation: u64,
    /// Servers of removed nodes that still have connections, and nodes whose own server stays until the next reload.
    undeleted: Vec<String>,
    lingering: BTreeSet<String>,
    /// What could not be done lately, beyond what the plan knows.
    problems: Vec<Problem>,
    file: FileMemory,
    lacks_sections: bool,
    /// Frontends that HAProxy refused, and those that its last words name, with these words.
    asides: Asides,
    blamed: BTreeMap<String, String>,
    /// How soon each Service may have the next reload, those that this one is for, and until when others wait.
    paces: Paces,
    reloading_for: BTreeSet<ServiceKey>,
    waits_until: Option<Instant>,
    /// Services whose servers have their new port already, which the rules of their frontends get by the next reload.
    owed: BTreeSet<ServiceKey>,
}

/// More rounds than this are not made for one configuration: each sets aside what HAProxy refuses.
const ROUNDS: usize = 4;

/// What we know of the file's content, by its hash.
#[derive(Debug, Default)]
struct FileMemory {
    /// What it holds, if nobody else has written it.
    held: Option<String>,
    /// What was rendered last, and what is in effect.
    rendered: Option<String>,
    in_effect: Option<String>,
    /// What the next run of the program will know that we wrote.
    noted: Option<String>,
    /// Somebody else has written it, and that may have been loaded.
    foreign: bool,
    foreign_changes: u64,
}

impl FileMemory {
    /// Looks at what it holds now; true if that is not what we wrote.
    fn look(&mut self, bytes: Option<&[u8]>) -> bool {
        let now = names::hash(bytes.unwrap_or_default());
        let changed = self.held.replace(now.clone()).is_some_and(|held| held != now);
        if changed {
            self.foreign = true;
            self.foreign_changes += 1;
        }
        changed
    }
}

/// What a file was written for.
struct Next {
    desired: Desired,
    template: Template,
    /// What the head says of all servers; none if servers that are added at run time can't have it.
    inherited: Option<String>,
    text: String,
}

/// Whom HAProxy's words name, by the backend.
fn blamed_of(words: &Words, text: &str, files: &[&Path], desired: &Desired) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for frontend in &desired.frontends {
        let own = frontend.local.is_some().then_some(frontend.last_resort.iter()).into_iter().flatten();
        for name in own.chain([&frontend.name, &frontend.backend]) {
            owners.insert(name.as_str(), frontend.backend.as_str());
        }
    }
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let files: Vec<&str> = files.iter().map(AsRef::as_ref).collect();
    blamed(words.all(), text, &files, &owners)
}

async fn restore(previous: Option<Previous>) -> Result<(), ApplyError> {
    match previous {
        Some(previous) => Ok(previous.restore().await?),
        None => Ok(()),
    }
}

impl Applier {
    /// Knows nothing of HAProxy yet.
    pub fn new(tools: Tools) -> Self {
        let (undeleted, lingering, problems) = (Vec::new(), BTreeSet::new(), Vec::new());
        let file = FileMemory::default();
        let (asides, blamed) = (Asides::default(), BTreeMap::new());
        Self {
            tools,
            live: None,
            generation: 0,
            undeleted,
            lingering,
            problems,
            file,
            lacks_sections: false,
            asides,
            blamed,
            paces: Paces::default(),
            reloading_for: BTreeSet::new(),
            waits_until: None,
            owed: BTreeSet::new(),
        }
    }

    /// The structure in effect, if it is known.
    pub fn layout(&self) -> Option<&Layout> {
        self.live.as_ref().map(|(layout, _)| layout)
    }

    /// Services whose ports others have.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The hash of the configuration in effect, as far as is known.
    pub fn in_effect(&self) -> Option<&str> {
        self.file.in_effect.as_deref()
    }

    /// How often another program has changed the configuration.
    pub fn foreign_changes(&self) -> u64 {
        self.file.foreign_changes
    }

    /// Returns until when a change waits that is not in effect yet, because its Service has changed often lately.
    pub fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// Returns when a frontend that was set aside is to be tried again.
    pub fn next_try(&self) -> Option<Instant> {
        self.asides.next()
    }

    /// Brings HAProxy to what is desired, or leaves everything as it was. Frontends that HAProxy refuses by name are set
    /// aside, and it goes on with the others.
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
            if !self.asides.set(&named, desired, what, Instant::now()) {
                // Whoever was set aside for this was not to blame, or not alone.
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
            tracing::warn!(file = %tools.file.path().display(), "another program has changed the configuration: putting it right");
        }
        let old_text = old.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        // What was written and never loaded is in nobody's effect, however much it is what is desired.
        let force = reload.wanted || tools.notes.is_unloaded() || self.file.foreign;
        let known = self.live.as_ref().filter(|(_, known)| *known == template);
        let same = known.is_some_and(|(layout, _)| layout.ours && layout.desired.same_text(desired));
        if same && !force && self.owed.is_empty() {
            self.waits_until = None;
            return Ok(Applied::Unchanged);
        }
        let mut desired = desired.clone();
        let live = self.live.as_ref().map(|(layout, _)| layout.desired.clone());
        self.problems = self.asides.leave_out(&mut desired, live.as_deref(), Instant::now());
        self.problems.extend(tools.leave_out(&template, &mut desired, &old_text));
        self.hold_back(&mut desired, reload.allowed && !force, force);
        let check = tools.check().await;
        let text = render(&template, &desired, &check, tools.state_file_name().as_deref())?;
        self.file.rendered = Some(names::hash(&text));
        let same_bytes = old.as_deref() == Some(text.as_bytes());
        let distance = self.distance(&desired, &template, same_bytes);
        let inherited = match &distance {
            Some(Distance::Servers { .. }) => tools.inherited(&text),
            _ => None,
        };
        // What the servers have been told is in the file already.
        let now = Instant::now();
        let pays = reload.allowed && self.owed.iter().any(|service| self.paces.waits(service, now).is_none());
        if same_bytes && !force && !pays && matches!(distance, None | Some(Distance::States)) {
            self.taken(desired, template, distance.is_none());
            return Ok(Applied::Unchanged);
        }
        let distance = match distance {
            Some(Distance::States) if pays => Distance::Structure,
            Some(distance) if !force => distance,
            _ => Distance::Structure,
        };
        if distance == Distance::Structure && !reload.allowed {
            return Ok(Applied::Postponed);
        }
        // The same bytes were validated when they were written.
        let previous = if same_bytes { None } else { Some(self.write(old, &text, &desired).await?) };
        let next = Next { desired, template, inherited, text };
        self.load(distance, previous, next, reload.allowed).await
    }

    /// Keeps back the changes that take a reload and may not have one now: none may if not `allowed`, and of the others not
    /// those of Services that have changed often lately. Everything else goes on.
    fn hold_back(&mut self, desired: &mut Desired, allowed: bool, all: bool) {
        self.waits_until = None;
        self.reloading_for.clear();
        let Some((layout, _)) = self.live.as_ref().filter(|(layout, _)| layout.ours && !all) else { return };
        let now = Instant::now();
        let mut kept = BTreeSet::new();
        let mut opens = Vec::new();
        let changed = desired.changed(&layout.desired);
        for (service, backends) in &changed {
            let waits = self.paces.waits(service, now);
            if waits.is_some() || !allowed {
                opens.push(waits.unwrap_or(now));
                kept.extend(backends.iter().cloned());
            } else {
                self.reloading_for.insert(service.clone());
            }
        }
        // One reload is for all of them.
        if kept.is_empty() || !self.reloading_for.is_empty() {
            self.reloading_for = changed.into_keys().collect();
        } else {
            *desired = keeping(desired, &layout.desired, &kept);
        }
        if self.reloading_for.is_empty() {
            let owed = self.owed.iter().map(|service| self.paces.waits(service, now).unwrap_or(now));
            self.waits_until = opens.into_iter().chain(owed).min();
        }
    }

    /// Once for each template without the generated sections, what that costs.
    fn tell_of(&mut self, template: &Template) {
        let lacks = !template.has_our_sections();
        if lacks && !std::mem::replace(&mut self.lacks_sections, lacks) {
            tracing::info!(
                "the template does not include \"sections\": each server is told its state by itself, and a node that \
                 comes or goes is a reload"
            );
        }
        self.lacks_sections = lacks;
    }

    /// Puts a new version in place, marked as not loaded.
    async fn write(
        &mut self,
        old: Option<Vec<u8>>,
        text: &str,
        desired: &Desired,
    ) -> Result<Previous, ApplyError> {
        let Tools { file, notes, haproxy, before, .. } = &self.tools;
        let candidate = file.prepare(text.as_bytes().to_vec()).await?;
        let valid = validate(haproxy, before, candidate.path()).await;
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

    /// Brings HAProxy to what the file holds now, by the least that it takes.
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
                Err(reason) if may_reload => {
                    tracing::info!(%reason, "servers can't be changed at run time: reloading");
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

    /// How far the running structure is from the desired one; none if nothing is known of it.
    fn distance(&self, desired: &Desired, template: &Template, same_bytes: bool) -> Option<Distance> {
        let (layout, live) = self.live.as_ref()?;
        let own = |desired| own_part(template, desired, &self.tools.policy.check);
        if live != template || (!same_bytes && own(&layout.desired) != own(desired)) {
            return Some(Distance::Structure);
        }
        match desired.distance(&layout.desired) {
            Distance::Servers { added, .. }
                if !template.has_our_sections() || added.iter().any(|name| self.lingers(name)) =>
            {
                Some(Distance::Structure)
            }
            // What is made of labels is not known, either.
            Distance::States
                if !same_bytes && !template.has_our_sections() && !desired.same_labels(&layout.desired) =>
            {
                Some(Distance::Structure)
            }
            distance => Some(distance),
        }
    }

    /// Whether HAProxy still has servers of a node that was taken out.
    fn lingers(&self, node: &str) -> bool {
        self.lingering.contains(node) || self.undeleted.iter().any(|server| server_is_of(server, node))
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
        let left = dynamic::change(
            runtime,
            &self.tools.policy.check,
            layout,
            &next.desired,
            (added, inherited),
            removed,
        )
        .await?;
        for name in removed {
            if !layout.dynamic.remove(name) {
                self.lingering.insert(name.clone());
            }
        }
        self.undeleted.extend(left);
        self.owed.extend(next.desired.other_node_ports(&layout.desired));
        let now = Instant::now();
        let owed = self.owed.iter().map(|service| self.paces.waits(service, now).unwrap_or(now));
        self.waits_until = self.waits_until.into_iter().chain(owed).min();
        layout.dynamic.extend(added.iter().cloned());
        Ok(())
    }

    async fn reload(
        &mut self,
        previous: Option<Previous>,
        Next { desired, template, text, .. }: Next,
    ) -> Result<Applied, ApplyError> {
        // Also where the bytes are the same: whoever is killed now must not take them for loaded afterwards.
        self.tools.notes.set_unloaded()?;
        match self.tools.reloader.reload().await {
            Ok(()) => {
                self.taken(desired, template, true);
                self.tools.notes.set_loaded();
                let told = self.tools.reloader.is_somebody();
                Ok(if told { Applied::Reloaded } else { Applied::Written })
            }
            // There is no old process to go on; the next one starts with the new file, which has been validated. Until
            // it has answered, and reloaded, nothing is known to have taken effect: it may have read the old one.
            Err(ReloadError::Ask(AskError::Absent(..))) => {
                self.live = None;
                self.generation += 1;
                self.note();
                Ok(Applied::NotRunning)
            }
            Err(error) => {
                if let ReloadError::Refused(words) | ReloadError::Command(_, words) = &error {
                    self.blamed = blamed_of(words, &text, &[self.tools.file.path()], &desired);
                    if self.blamed.is_empty() {
                        self.blamed = self.only_new(&desired);
                    }
                }
                self.file.held = None;
                restore(previous).await?;
                Err(error.into())
            }
        }
    }

    /// Lets the next run of the program tell what we wrote from what others did.
    fn note(&mut self) {
        if let Some(written) =
            self.file.rendered.as_ref().filter(|text| self.file.noted.as_ref() != Some(text))
        {
            self.tools.notes.set_written(written);
        }
        self.file.noted.clone_from(&self.file.rendered);
    }

    /// The frontends that listen where none did before, if they are of one Service alone. HAProxy 2.6 does not say on its
    /// socket why it refuses a reload, and nothing else of what is checked beforehand can keep it from one.
    fn only_new(&self, desired: &Desired) -> BTreeMap<String, String> {
        let Some((layout, _)) = &self.live else { return BTreeMap::new() };
        let listens = |frontend: &&Frontend| {
            layout.desired.frontend(&frontend.backend).is_none_or(|old| old.binds != frontend.binds)
        };
        let new: Vec<&Frontend> = desired.frontends.iter().filter(listens).collect();
        let services: BTreeSet<_> = new.iter().map(|f| (&f.namespace, &f.service)).collect();
        let why = "HAProxy does not say why, and only this Service listens anew";
        let of_one = if services.len() == 1 { new } else { Vec::new() };
        of_one.into_iter().map(|frontend| (frontend.backend.clone(), why.to_owned())).collect()
    }

    fn taken(&mut self, desired: Desired, template: Template, new_process: bool) {
        self.note();
        self.file.in_effect.clone_from(&self.file.rendered);
        let (dynamic, loaded) = match self.live.take() {
            Some((layout, _)) if !new_process => (layout.dynamic, layout.loaded),
            _ => {
                self.generation += 1;
                self.file.foreign = false;
                let services = self.reloading_for.iter().chain(&self.owed);
                self.paces.reloaded(services, Instant::now());
                self.owed.clear();
                self.waits_until = None;
                self.undeleted.clear();
                self.lingering.clear();
                let weights = desired.nodes.iter().map(|node| (node.name.clone(), node.weight));
                (BTreeSet::new(), Arc::new(weights.collect()))
            }
        };
        let ours = template.has_our_sections();
        let layout =
            Layout { desired: Arc::new(desired), dynamic, loaded, ours, generation: self.generation };
        self.live = Some((layout, template));
    }

    /// Tries again to delete servers whose connections may have ended; true if some are left.
    pub async fn tidy(&mut self) -> bool {
        let Some(runtime) = &self.tools.runtime else { return false };
        let servers = std::mem::take(&mut self.undeleted);
        if !servers.is_empty() {
            self.undeleted = dynamic::delete(runtime, servers.clone()).await.unwrap_or(servers);
        }
        !self.undeleted.is_empty()
    }
}

/// Whether `backend/server` is this node's.
fn server_is_of(server: &str, node: &str) -> bool {
    server.split_once('/').is_some_and(|(_, name)| name == node)
}
