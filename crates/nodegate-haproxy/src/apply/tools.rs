//! What HAProxy is brought to what is desired with.

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

/// What the shipped head says that only root can do.
const PRIVILEGED: [&str; 3] = ["user ", "group ", "chroot "];

/// The template can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read the template {0}: {1}")]
pub struct TemplateError(PathBuf, std::io::Error);

/// Files, sockets, programs and rules.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The configuration.
    pub file: ConfigFile,
    /// What is remembered of it.
    pub notes: Notes,
    /// The operator's template; none for the shipped head, or for no head beside a configuration of the operator's.
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
    pub policy: PlanPolicy,
}

impl Tools {
    /// The template as it is now.
    pub fn read_template(&self) -> Result<Template, TemplateError> {
        let Some(path) = &self.template else { return Ok(Template::Head(self.head())) };
        let text = std::fs::read_to_string(path).map_err(|error| TemplateError(path.clone(), error))?;
        Ok(Template::of_file(&path.to_string_lossy(), text))
    }

    /// Returns the head without a template: none beside another file, whose `global` and `defaults` hold for all.
    fn head(&self) -> String {
        if !self.before.is_empty() {
            return String::new();
        }
        // Whoever is not root has nothing to give up, and may not change its root directory.
        let is_root = rustix::process::geteuid().is_root();
        let kept =
            |line: &&str| is_root || !PRIVILEGED.iter().any(|word| line.trim_start().starts_with(word));
        DEFAULT_HEAD.lines().filter(kept).flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns the texts that HAProxy reads before ours: of a directory those files that it takes, in its order.
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

    /// Whether the template has the generated sections; one that can't be read now has not.
    pub fn have_our_sections(&self) -> bool {
        self.read_template().is_ok_and(|template| template.has_our_sections())
    }

    /// Returns true if the configuration has a section of one of these backends.
    pub(crate) fn file_has_any(&self, backends: &BTreeMap<String, String>) -> Result<bool, FileError> {
        let text = self.file.read()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut names = text.lines().filter_map(|line| line.strip_prefix("backend "));
        Ok(names.any(|name| backends.contains_key(name)))
    }

    /// The name of the file of states, as the configuration has it.
    pub fn state_file_name(&self) -> Option<Cow<'_, str>> {
        self.state_file.as_deref().map(Path::to_string_lossy)
    }

    /// How nodes are checked, with what the HAProxy can do that will read of it. It is asked each time, for it may be
    /// another one since. Without the states of the last process all servers would be down after each reload.
    pub async fn check(&self) -> HealthCheck {
        let keeps_states = self.runtime.is_some() && self.state_file.is_some();
        let starts_down = keeps_states && Version::of(&self.haproxy).await >= Some(Version::INIT_STATE);
        HealthCheck { starts_down, ..self.policy.check.clone() }
    }

    /// What the servers of a configuration's generated sections inherit from what stands before these; none if no server
    /// can have it that is added at run time.
    pub fn inherited(&self, config: &str) -> Option<String> {
        let mut text = self.texts_before().ok()?.concat();
        text.push_str(
            config.split(&format!("\nbackend {}\n", self.policy.names.nodes())).next().unwrap_or_default(),
        );
        default_server(&text)
    }

    /// Takes out what wants a port that the template, another file of HAProxy's or another program has, or that HAProxy may
    /// not bind, and tells what that was. `old` is the configuration in effect.
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

/// Returns true if HAProxy reads this file of a directory that it was told to read.
fn is_read(file: &Path) -> bool {
    let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && file.extension().is_some_and(|ending| ending == "cfg") && file.is_file()
}
