//! Applies a plan: one file, one check, one reload, one proof. If any of them fails, the old file and the old
//! processes stay.

use crate::apply::check::{CheckError, check};
use crate::apply::config_file::{ConfigFile, FileError, Stamp};
use crate::apply::ports;
use crate::apply::states::States;
use crate::apply::template::{self, TemplateError};
use crate::haproxy::command::{self, CommandError};
use crate::haproxy::launch::Launch;
use crate::haproxy::master::{Master, RELOAD, ReloadError};
use crate::haproxy::socket::SocketError;
use crate::haproxy::words::Words;
use crate::plan::desired::{Desired, Problem};
use crate::plan::explain::Passing;
use crate::plan::names;
use crate::plan::policy::CheckKind;
use crate::plan::render::{MARKER, Rendered, Sections, hash_of, render, sockets, states_file};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::Instant;

/// The interval between looks after `--reload-command`.
const POLL: Duration = Duration::from_millis(50);

/// The time for which the ports of a HAProxy that has ended still count as its own. Its workers may end later, and a
/// restart brings it back.
const ENDING: Duration = Duration::from_secs(10);

/// The places of the files and of HAProxy.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The file that HAProxy loads.
    pub config: ConfigFile,
    /// The operator's part of it.
    pub template: Option<PathBuf>,
    /// HAProxy's program. `None` leaves the check to the reload.
    pub haproxy: Option<PathBuf>,
    /// HAProxy's master.
    pub master: Master,
    /// The command that reloads HAProxy. Empty for the master socket.
    pub reload_command: Vec<String>,
    /// The settings of the generated sections.
    pub sections: Sections,
}

/// The result of applying a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The running HAProxy has it already.
    Unchanged,
    /// HAProxy has reloaded and proves that it runs it.
    Reloaded,
    /// The file is in place, and HAProxy is not running.
    Written,
    /// The file differs, and there was no permission to reload.
    Postponed,
}

/// What the running HAProxy proves.
#[derive(Debug)]
pub enum Running {
    /// It runs the file that is in place.
    Proven,
    /// It runs another configuration, or the file has been changed. Has the reason.
    Elsewhere(String),
    /// It is not running.
    Absent,
    /// It does not answer.
    Unknown(SocketError),
}

/// The error of applying a plan.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The template can't be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not ours.
    #[error(
        "{0} has no generated part, so a person or another program wrote it; nodegate-haproxy does not replace it. \
         Make it the --template, and remove it"
    )]
    Foreign(PathBuf),
    /// HAProxy refuses the file.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// HAProxy can't be asked.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// The reload failed.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The operator's command failed.
    #[error("--reload-command: {0}")]
    Command(#[from] CommandError),
    /// The operator's command ended badly.
    #[error("--reload-command failed: {0}")]
    CommandFailed(Words),
}

impl ApplyError {
    /// Returns the kind for a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Template(_) => "template",
            Self::File(_) => "write",
            Self::Foreign(_) => "foreign",
            Self::Check(_) => "check",
            Self::Reload(ReloadError::Elsewhere(_)) => "proof",
            Self::Ask(_) | Self::Reload(_) | Self::Command(_) | Self::CommandFailed(_) => "reload",
        }
    }
}

/// Applies plans, and knows what is in effect.
#[derive(Debug)]
pub struct Applier {
    tools: Tools,
    /// The hash and the version of the file that was written or adopted last.
    written: Option<(String, Option<Stamp>)>,
    left_out: Vec<Problem>,
    /// The time since when HAProxy has not been running.
    absent_since: Option<Instant>,
    /// The last version that another program put in its place.
    foreign: Option<Stamp>,
    /// True until [`Self::take_foreign_change`] has returned it.
    foreign_change: bool,
}

impl Applier {
    /// Creates an applier that knows nothing yet.
    pub fn new(tools: Tools) -> Self {
        Self {
            tools,
            written: None,
            left_out: Vec::new(),
            absent_since: None,
            foreign: None,
            foreign_change: false,
        }
    }

    /// Returns the frontends of the last plan that were left out, with the reasons.
    pub fn left_out(&self) -> &[Problem] {
        &self.left_out
    }

    /// Returns the hash of the file that was written or adopted last.
    pub fn hash(&self) -> Option<&str> {
        self.written.as_ref().map(|(hash, _)| hash.as_str())
    }

    /// Returns true once for each time that another program changed the file.
    pub fn take_foreign_change(&mut self) -> bool {
        std::mem::take(&mut self.foreign_change)
    }

    /// Returns a version of the template, to notice an edit.
    pub fn template_stamp(&self) -> Option<Stamp> {
        ConfigFile::new(self.tools.template.clone()?).stamp()
    }

    /// Asks the running HAProxy whether it has the file that was written last.
    pub async fn running(&self) -> Running {
        let config = &self.tools.config;
        let Some((hash, stamp)) = &self.written else {
            return Running::Elsewhere("no configuration has been applied yet".to_owned());
        };
        match self.tools.master.runs(hash).await {
            Ok(true) if config.stamp() == *stamp => Running::Proven,
            Ok(true) => {
                Running::Elsewhere(format!("another program has changed {}", config.path().display()))
            }
            Ok(false) => {
                Running::Elsewhere(format!("HAProxy runs another configuration; {}", self.elsewhere().await))
            }
            Err(SocketError::Absent(..)) => Running::Absent,
            Err(error) => Running::Unknown(error),
        }
    }

    async fn elsewhere(&self) -> String {
        self.tools.master.elsewhere().await
    }

    /// Applies a plan, and leaves the frontends out of it that HAProxy can't have now. `may_reload` is false if
    /// it is too early for a reload.
    pub async fn apply(&mut self, desired: &mut Desired, may_reload: bool) -> Result<Applied, ApplyError> {
        let tools = self.tools.clone();
        let template = template::read(tools.template.as_deref())?;
        let disk = tools.config.read()?.unwrap_or_default();
        let hash = hash_of(&disk);
        // A copy of the template: nothing is lost.
        let ours = disk.trim_ascii().is_empty() || disk == template || contains(&disk, MARKER.as_bytes());
        if hash.is_none() && !ours {
            self.note_foreign_change();
            return Err(ApplyError::Foreign(tools.config.path().to_owned()));
        }
        let launch = tools.master.launch().await;
        let processes = match tools.master.processes().await {
            Ok(processes) => Some(processes),
            Err(SocketError::Absent(..)) => None,
            Err(error) => return Err(error.into()),
        };
        let proven = match &hash {
            Some(hash) if processes.is_some() => tools.master.runs(hash).await?,
            _ => false,
        };
        self.absent_since =
            if processes.is_some() { None } else { self.absent_since.or_else(|| Some(Instant::now())) };
        let has_ended = self.absent_since.is_some_and(|since| since.elapsed() > ENDING);
        self.leave_out(desired, &template, launch.as_ref(), (!has_ended).then_some(disk.as_slice()));
        let new = render(&template, desired, &tools.sections, tools.config.path());
        if disk == new.bytes && (proven || processes.is_none()) {
            self.adopt(new.hash);
            return Ok(if proven { Applied::Unchanged } else { Applied::Written });
        }
        self.note_foreign_change();
        if processes.is_some() && !may_reload {
            return Ok(Applied::Postponed);
        }
        self.put_in_place(new, desired, launch.as_ref(), processes.is_some()).await
    }

    /// Notes a change of the file that this process did not make.
    fn note_foreign_change(&mut self) {
        let now = self.tools.config.stamp();
        if self.written.as_ref().is_some_and(|(_, stamp)| *stamp != now) && self.foreign != now {
            self.foreign_change = true;
            self.foreign = now;
        }
    }

    fn leave_out(
        &mut self,
        desired: &mut Desired,
        template: &[u8],
        launch: Option<&Launch>,
        running: Option<&[u8]>,
    ) {
        let variable = |name: &str| launch.and_then(|launch| launch.variable(name));
        // While a reload is under way, or was broken off, the processes have the sockets of either version.
        let ours: Vec<SocketAddr> = running.map_or_else(Vec::new, |disk| {
            let before = std::fs::read(self.tools.config.previous_path()).unwrap_or_default();
            [sockets(disk), sockets(&before)].concat()
        });
        self.left_out = ports::leave_out(desired, &template::sockets(template, variable), &ours);
    }

    fn adopt(&mut self, hash: String) {
        self.written = Some((hash, self.tools.config.stamp()));
    }

    async fn put_in_place(
        &mut self,
        new: Rendered,
        desired: &Desired,
        launch: Option<&Launch>,
        is_running: bool,
    ) -> Result<Applied, ApplyError> {
        let tools = self.tools.clone();
        let config = tools.config.path();
        let states = if is_running { states(&tools.master, desired).await? } else { States::default() };
        let states_file = ConfigFile::new(states_file(config, &new.hash));
        states_file.replace(states.compose(desired).into_bytes()).await?;
        let candidate = tools.config.prepare(new.bytes).await?;
        if let Some(haproxy) = &tools.haproxy {
            check(haproxy, launch, config, candidate.path()).await?;
        }
        let previous = candidate.commit().await?;
        if is_running && let Err(error) = self.reload(&new.hash).await {
            previous.restore().await?;
            return Err(error);
        }
        drop(previous);
        self.adopt(new.hash);
        self.remove_old_states(states_file.path());
        Ok(if is_running { Applied::Reloaded } else { Applied::Written })
    }

    async fn reload(&self, hash: &str) -> Result<(), ApplyError> {
        let Tools { master, reload_command, .. } = &self.tools;
        let Some((program, words)) = reload_command.split_first() else {
            return Ok(master.reload(hash).await?);
        };
        let mut reload = tokio::process::Command::new(program);
        reload.args(words).stdin(Stdio::null());
        let ended = command::run(reload, RELOAD).await?;
        if !ended.success {
            return Err(ApplyError::CommandFailed(Words::new(&ended.said)));
        }
        let deadline = Instant::now() + RELOAD;
        while !master.runs(hash).await.unwrap_or(false) {
            if Instant::now() >= deadline {
                return Err(ReloadError::Elsewhere(self.elsewhere().await).into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Removes the state files of other configurations. One that remains is read by none.
    fn remove_old_states(&self, kept: &Path) {
        let config = self.tools.config.path();
        let (Some(directory), Some(name)) = (config.parent(), config.file_name()) else { return };
        let prefix = format!("{}.", name.to_string_lossy());
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten().filter(|entry| entry.path() != kept) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let hash = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".states"));
            if hash.is_some_and(|hash| hash.len() == 32) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Returns which nodes pass HAProxy's check. `None` if it can't be asked, or has no check.
    pub async fn passing(&self, desired: &Desired) -> Option<Passing> {
        passing(&self.tools, desired).await
    }
}

/// Asks the newest worker for the states of all servers that have a check of their own.
async fn states(master: &Master, desired: &Desired) -> Result<States, SocketError> {
    let mut states = States::default();
    for backend in desired.backends.iter().filter(|backend| backend.own_check().is_some()) {
        states.add(&master.ask_worker(&format!("show servers state {}", backend.name)).await?);
    }
    Ok(states)
}

/// Returns which nodes pass HAProxy's check, in any of the backends that check them.
pub async fn passing(tools: &Tools, desired: &Desired) -> Option<Passing> {
    let asked: Vec<&str> = match tools.sections.check.kind {
        CheckKind::Agent => vec![names::NODES],
        CheckKind::Tcp => {
            desired.backends.iter().filter(|b| b.own_check().is_some()).map(|b| b.name.as_str()).collect()
        }
        CheckKind::None => return None,
    };
    let mut states = States::default();
    let mut passing = Passing::new();
    for backend in asked {
        states.add(&tools.master.ask_worker(&format!("show servers state {backend}")).await.ok()?);
        for (node, passes) in states.passing(backend) {
            *passing.entry(node.to_owned()).or_default() |= passes;
        }
    }
    Some(passing).filter(|passing| !passing.is_empty())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
