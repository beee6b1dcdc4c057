//! The files, sockets and programs that the applier uses.

use crate::apply::config_file::{ConfigFile, FileError};
use crate::apply::default_server::default_server;
use crate::apply::notes::Notes;
use crate::apply::ports::{absent, bound, leave_out_bound, leave_out_busy};
use crate::apply::reloader::Reloader;
use crate::haproxy::socket::Runtime;
use crate::haproxy::version::Version;
use crate::plan::desired::{Desired, Problem};
use crate::plan::policy::{HealthCheck, PlanPolicy};
use crate::plan::render::{DEFAULT_HEAD, Template};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The lines of the default head that only work as root.
const PRIVILEGED: [&str; 3] = ["user ", "group ", "chroot "];

/// The template can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read the template {0}: {1}")]
pub struct TemplateError(PathBuf, std::io::Error);

/// The files, sockets, programs and rules of the applier.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The configuration file.
    pub file: ConfigFile,
    /// The files that are kept from one run to the next.
    pub notes: Notes,
    /// The operator's template. Without it, the default head, or no head beside a configuration of the
    /// operator.
    pub template: Option<PathBuf>,
    /// The file for server states. `None` if they are not kept.
    pub state_file: Option<PathBuf>,
    /// The HAProxy program.
    pub haproxy: PathBuf,
    /// The files that HAProxy loads before the generated one.
    pub before: Vec<PathBuf>,
    /// The way to reload HAProxy.
    pub reloader: Reloader,
    /// The socket for changes at run time.
    pub runtime: Option<Runtime>,
    /// The rules of planning.
    pub policy: PlanPolicy,
}

impl Tools {
    /// Reads the template.
    pub fn read_template(&self) -> Result<Template, TemplateError> {
        let Some(path) = &self.template else { return Ok(Template::Head(self.head())) };
        let text = std::fs::read_to_string(path).map_err(|error| TemplateError(path.clone(), error))?;
        Ok(Template::of_file(&path.to_string_lossy(), text))
    }

    /// Returns the head if there is no template. It is empty beside another file, whose `global` and
    /// `defaults` apply to all.
    fn head(&self) -> String {
        if !self.before.is_empty() {
            return String::new();
        }
        // Only root can drop privileges and change its root directory.
        let is_root = rustix::process::geteuid().is_root();
        let kept =
            |line: &&str| is_root || !PRIVILEGED.iter().any(|word| line.trim_start().starts_with(word));
        DEFAULT_HEAD.lines().filter(kept).flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns the texts that HAProxy reads before the generated file. Of a directory, those are the files
    /// that it takes, in its order.
    fn texts_before(&self) -> io::Result<Vec<String>> {
        let mut texts = Vec::new();
        for path in &self.before {
            let mut files = vec![path.clone()];
            if path.is_dir() {
                let entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
                files = entries.iter().map(std::fs::DirEntry::path).filter(|file| is_read(file)).collect();
                files.sort();
            }
            for file in files.iter().filter(|file| file.as_path() != self.file.path()) {
                texts.push(std::fs::read_to_string(file)?);
            }
        }
        Ok(texts)
    }

    /// Returns true if the template has the generated sections. Returns false if it can't be read now.
    pub fn have_our_sections(&self) -> bool {
        self.read_template().is_ok_and(|template| template.has_our_sections())
    }

    /// Returns true if the configuration has a section for one of these backends.
    pub(crate) fn file_has_any(&self, backends: &BTreeMap<String, String>) -> Result<bool, FileError> {
        let text = self.file.read()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut names = text.lines().filter_map(|line| line.strip_prefix("backend "));
        Ok(names.any(|name| backends.contains_key(name)))
    }

    /// Returns the name of the state file as the configuration has it.
    pub fn state_file_name(&self) -> Option<Cow<'_, str>> {
        self.state_file.as_deref().map(Path::to_string_lossy)
    }

    /// Returns the health check, with the features of the HAProxy program that will read it. Runs the program
    /// each time, because another one may have been installed. Without the states of the last process,
    /// servers that start down would all be down after each reload.
    pub async fn check(&self) -> HealthCheck {
        let keeps_states = self.runtime.is_some() && self.state_file.is_some();
        let starts_down = keeps_states && Version::of(&self.haproxy).await >= Some(Version::INIT_STATE);
        HealthCheck { starts_down, ..self.policy.check.clone() }
    }

    /// Returns the settings that the generated servers inherit from the text before them. Returns `None` if a
    /// server that is added at run time can't have them.
    pub fn inherited(&self, config: &str) -> Option<String> {
        let mut text = self.texts_before().ok()?.concat();
        text.push_str(
            config.split(&format!("\nbackend {}\n", self.policy.names.nodes())).next().unwrap_or_default(),
        );
        default_server(&text)
    }

    /// Removes the frontends on whose port the template, another file of HAProxy or another program listens,
    /// or that HAProxy may not bind. Returns the problems. `old` is the configuration in effect.
    pub async fn leave_out(&self, template: &Template, desired: &mut Desired, old: &str) -> Vec<Problem> {
        let planned = desired.problems.clone();
        let mut hand_written = bound(template.text());
        hand_written.extend(self.texts_before().iter().flatten().flat_map(|text| bound(text)));
        leave_out_bound(desired, &hand_written);
        leave_out_busy(desired, old, self.reloader.rights().await);
        desired.problems.extend(absent(self.policy.addresses()));
        desired.problems.iter().filter(|problem| !planned.contains(problem)).cloned().collect()
    }
}

/// Returns true if HAProxy reads this file of a directory that it loads.
fn is_read(file: &Path) -> bool {
    let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && file.extension().is_some_and(|ending| ending == "cfg") && file.is_file()
}
