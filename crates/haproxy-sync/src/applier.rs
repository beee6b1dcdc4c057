//! Brings the configuration file and HAProxy's structure to what is desired.

use crate::config_file::{ConfigFile, FileError, Previous};
use crate::desired::{Desired, Distance, Problem};
use crate::dynamic::{self, DynamicError};
use crate::guard::removal;
use crate::layout::Layout;
use crate::master::{Master, ReloadError};
use crate::policy::Policy;
use crate::ports::{bound_ports, leave_out_bound, leave_out_busy};
use crate::render::{RenderError, Template, render};
use crate::socket::{AskError, Runtime};
use crate::validate::{ValidateError, validate};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;

/// How HAProxy is told to read its configuration again.
#[derive(Clone, Debug)]
pub enum Reloader {
    /// The master socket.
    Master(Master),
    /// A command of the operator's, whose exit status is believed.
    Command(Vec<String>, Duration),
    /// Nobody tells it.
    Nobody,
}

/// What the applier works with.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The configuration.
    pub file: ConfigFile,
    /// The operator's template; none for the default head.
    pub template: Option<PathBuf>,
    /// Where server states are kept; none if they are not.
    pub state_file: Option<PathBuf>,
    /// The program.
    pub haproxy: PathBuf,
    /// Files that HAProxy is started with before ours.
    pub before: Vec<PathBuf>,
    /// How to reload.
    pub reloader: Reloader,
    /// How to change servers at run time.
    pub runtime: Option<Runtime>,
    /// The rules.
    pub policy: Policy,
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
    /// A new file; no HAProxy runs that could read it.
    NotRunning,
}

/// Why the configuration in effect is still the old one.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The template can't be read.
    #[error("can't read the template {0}: {1}")]
    ReadTemplate(PathBuf, std::io::Error),
    /// The template does not work.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// HAProxy can't read it.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// Too much would vanish.
    #[error("{gone} of {all} servers would vanish at once, more than --max-removal allows")]
    Removal {
        /// How many servers.
        gone: usize,
        /// Of how many.
        all: usize,
    },
    /// HAProxy did not take it.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

impl ApplyError {
    /// The value of a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReadTemplate(..) | Self::Render(_) => "template",
            Self::File(_) => "file",
            Self::Validate(_) => "validate",
            Self::Removal { .. } => "guard",
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
}

impl Applier {
    /// Knows nothing of HAProxy yet.
    pub fn new(tools: Tools) -> Self {
        let (undeleted, lingering, problems) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { tools, live: None, generation: 0, undeleted, lingering, problems }
    }

    /// The structure in effect, if it is known.
    pub fn layout(&self) -> Option<&Layout> {
        self.live.as_ref().map(|(layout, _)| layout)
    }

    /// Services whose ports others have.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The template as it is now.
    pub fn read_template(path: Option<&Path>) -> Result<Template, ApplyError> {
        let Some(path) = path else { return Ok(Template::Head(crate::render::DEFAULT_HEAD.to_owned())) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| ApplyError::ReadTemplate(path.to_owned(), error))?;
        Ok(Template::of_file(&path.to_string_lossy(), text))
    }

    /// Brings HAProxy to what is desired, or leaves everything as it was. `force` reloads even if nothing changed.
    pub async fn settle(&mut self, desired: &Desired, force: bool) -> Result<Applied, ApplyError> {
        let tools = self.tools.clone();
        let template = Self::read_template(tools.template.as_deref())?;
        let old = tools.file.read()?;
        let planned = &desired.problems;
        let mut desired = desired.clone();
        let old_text = old.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        if let (None, Some((gone, all))) =
            (&self.live, removal(&old_text, &desired, tools.policy.max_removal))
        {
            return Err(ApplyError::Removal { gone, all });
        }
        let known = self.live.as_ref().filter(|(_, known)| *known == template);
        if !force && known.is_some_and(|(layout, _)| layout.ours && layout.desired.same_text(&desired)) {
            return Ok(Applied::Unchanged);
        }
        leave_out_bound(&mut desired, &self.bound(&template));
        leave_out_busy(&mut desired, &tools.policy.bind, &old_text);
        let mine = |problem: &&Problem| !planned.contains(problem);
        self.problems = desired.problems.iter().filter(mine).cloned().collect();
        let state_file = tools.state_file.as_deref().map(Path::to_string_lossy);
        let text = render(&template, &desired, &tools.policy.check, state_file.as_deref())?;
        let same_bytes = old.as_deref() == Some(text.as_bytes());
        drop(old);
        let distance = self.distance(&desired, &template);
        if same_bytes && !force && matches!(distance, None | Some(Distance::States)) {
            self.taken(desired, template, distance.is_none());
            return Ok(Applied::Unchanged);
        }
        let candidate = tools.file.prepare(text.as_bytes())?;
        validate(&tools.haproxy, &tools.before, candidate.path()).await?;
        drop(text);
        let previous = candidate.commit()?;
        if !force {
            match distance {
                Some(Distance::States) => {
                    self.taken(desired, template, false);
                    return Ok(Applied::Rewritten);
                }
                Some(Distance::Nodes { added, removed }) => match self
                    .change(&desired, &added, &removed)
                    .await
                {
                    Ok(()) => {
                        self.taken(desired, template, false);
                        return Ok(Applied::Dynamic);
                    }
                    Err(reason) => tracing::info!(%reason, "servers can't be changed at run time: reloading"),
                },
                Some(Distance::Structure) | None => {}
            }
        }
        self.reload(previous, desired, template).await
    }

    /// Ports of what the operator wrote.
    fn bound(&self, template: &Template) -> BTreeSet<u16> {
        let mut ports = bound_ports(template.text());
        for file in &self.tools.before {
            ports.extend(std::fs::read_to_string(file).iter().flat_map(|text| bound_ports(text)));
        }
        ports
    }

    /// How far the running structure is from the desired one; none if nothing is known of it.
    fn distance(&self, desired: &Desired, template: &Template) -> Option<Distance> {
        let (layout, live) = self.live.as_ref()?;
        if live != template {
            return Some(Distance::Structure);
        }
        match desired.distance(&layout.desired) {
            Distance::Nodes { added, .. }
                if !template.has_our_sections() || added.iter().any(|name| self.lingering.contains(name)) =>
            {
                Some(Distance::Structure)
            }
            distance => Some(distance),
        }
    }

    async fn change(
        &mut self,
        desired: &Desired,
        added: &BTreeSet<String>,
        removed: &BTreeSet<String>,
    ) -> Result<(), DynamicError> {
        let (Some(runtime), Some((layout, _))) = (&self.tools.runtime, &mut self.live) else {
            return Err(DynamicError::Version);
        };
        let left =
            dynamic::change(runtime, &self.tools.policy.check, layout, desired, added, removed).await?;
        for name in removed {
            let own = layout.dynamic.remove(name);
            if !own || left.iter().any(|server| server.ends_with(&format!("/{name}"))) {
                self.lingering.insert(name.clone());
            }
        }
        self.undeleted.extend(left);
        layout.dynamic.extend(added.iter().cloned());
        Ok(())
    }

    async fn reload(
        &mut self,
        previous: Previous,
        desired: Desired,
        template: Template,
    ) -> Result<Applied, ApplyError> {
        let result = match &self.tools.reloader {
            Reloader::Master(master) => master.reload().await,
            Reloader::Command(words, patience) => run(words, *patience).await,
            Reloader::Nobody => Ok(()),
        };
        match result {
            Ok(()) => {
                self.taken(desired, template, true);
                Ok(Applied::Reloaded)
            }
            // There is no old process to go on; the next one starts with the new file, which has been validated.
            Err(ReloadError::Ask(AskError::Absent(..))) => {
                self.live = None;
                Ok(Applied::NotRunning)
            }
            Err(error) => {
                previous.restore()?;
                Err(error.into())
            }
        }
    }

    fn taken(&mut self, desired: Desired, template: Template, new_process: bool) {
        let (dynamic, loaded) = match self.live.take() {
            Some((layout, _)) if !new_process => (layout.dynamic, layout.loaded),
            _ => {
                self.generation += 1;
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

    /// Tries again to delete servers whose connections may have ended.
    pub async fn tidy(&mut self) {
        let Some(runtime) = &self.tools.runtime else { return };
        let servers = std::mem::take(&mut self.undeleted);
        if !servers.is_empty() {
            self.undeleted = dynamic::delete(runtime, servers.clone()).await.unwrap_or(servers);
        }
    }
}

async fn run(words: &[String], patience: Duration) -> Result<(), ReloadError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(patience, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = crate::validate::telling(&String::from_utf8_lossy(&output.stderr));
            Err(ReloadError::Command(format!("{}: {said}", output.status)))
        }
        Ok(Err(error)) => Err(ReloadError::Command(error.to_string())),
        Err(_) => Err(ReloadError::Timeout(patience)),
    }
}
