//! Brings the configuration file and HAProxy's structure to what is desired.

use crate::apply::config_file::{FileError, Previous};
use crate::apply::dynamic::{self, DynamicError};
use crate::apply::layout::Layout;
use crate::apply::tools::{TemplateError, Tools};
use crate::haproxy::master::ReloadError;
use crate::haproxy::socket::AskError;
use crate::haproxy::validate::{ValidateError, validate};
use crate::plan::desired::{Desired, Distance, Problem};
use crate::plan::names;
use crate::plan::render::{RenderError, Template, own_part, render};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

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
}

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
        Self { tools, live: None, generation: 0, undeleted, lingering, problems, file, lacks_sections: false }
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

    /// Brings HAProxy to what is desired, or leaves everything as it was.
    pub async fn apply(&mut self, desired: &Desired, reload: Reload) -> Result<Applied, ApplyError> {
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
        if !force && known.is_some_and(|(layout, _)| layout.ours && layout.desired.same_text(desired)) {
            return Ok(Applied::Unchanged);
        }
        let mut desired = desired.clone();
        self.problems = tools.leave_out(&template, &mut desired, &old_text);
        let check = tools.check().await;
        let text = render(&template, &desired, &check, tools.state_file_name().as_deref())?;
        self.file.rendered = Some(names::hash(&text));
        let same_bytes = old.as_deref() == Some(text.as_bytes());
        let distance = self.distance(&desired, &template, same_bytes);
        let inherited = match &distance {
            Some(Distance::Nodes { .. }) => tools.inherited(&text),
            _ => None,
        };
        if same_bytes && !force && matches!(distance, None | Some(Distance::States)) {
            self.taken(desired, template, distance.is_none());
            return Ok(Applied::Unchanged);
        }
        let distance = distance.filter(|_| !force).unwrap_or(Distance::Structure);
        if distance == Distance::Structure && !reload.allowed {
            return Ok(Applied::Postponed);
        }
        // The same bytes were validated when they were written.
        let previous = if same_bytes { None } else { Some(self.write(old, text).await?) };
        let next = Next { desired, template, inherited };
        self.load(distance, previous, next, reload.allowed).await
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
    async fn write(&mut self, old: Option<Vec<u8>>, text: String) -> Result<Previous, ApplyError> {
        let Tools { file, notes, haproxy, before, .. } = &self.tools;
        let candidate = file.prepare(text.into_bytes()).await?;
        validate(haproxy, before, candidate.path()).await?;
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
            Distance::Nodes { added, removed } => match self.change(&next, &added, &removed).await {
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
            Distance::Nodes { added, .. }
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
        layout.dynamic.extend(added.iter().cloned());
        Ok(())
    }

    async fn reload(
        &mut self,
        previous: Option<Previous>,
        Next { desired, template, .. }: Next,
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

    fn taken(&mut self, desired: Desired, template: Template, new_process: bool) {
        self.note();
        self.file.in_effect.clone_from(&self.file.rendered);
        let (dynamic, loaded) = match self.live.take() {
            Some((layout, _)) if !new_process => (layout.dynamic, layout.loaded),
            _ => {
                self.generation += 1;
                self.file.foreign = false;
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
