//! What HAProxy is brought to what is desired with.

use crate::apply::config_file::ConfigFile;
use crate::apply::default_server::default_server;
use crate::apply::ports::{absent, bound_ports, leave_out_bound, leave_out_busy};
use crate::apply::reloader::Reloader;
use crate::haproxy::socket::Runtime;
use crate::haproxy::version::Version;
use crate::plan::desired::{Desired, Problem};
use crate::plan::policy::{Check, Policy};
use crate::plan::render::{DEFAULT_HEAD, Template};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The template can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read the template {0}: {1}")]
pub struct TemplateError(PathBuf, std::io::Error);

/// Files, sockets, programs and rules.
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

impl Tools {
    /// The template as it is now.
    pub fn read_template(&self) -> Result<Template, TemplateError> {
        let Some(path) = &self.template else { return Ok(Template::Head(DEFAULT_HEAD.to_owned())) };
        let text = std::fs::read_to_string(path).map_err(|error| TemplateError(path.clone(), error))?;
        Ok(Template::of_file(&path.to_string_lossy(), text))
    }

    /// Whether the template has the generated sections; one that can't be read now has not.
    pub fn have_our_sections(&self) -> bool {
        self.read_template().is_ok_and(|template| template.has_our_sections())
    }

    /// The name of the file of states, as the configuration has it.
    pub fn state_file_name(&self) -> Option<Cow<'_, str>> {
        self.state_file.as_deref().map(Path::to_string_lossy)
    }

    /// How nodes are checked, with what the HAProxy can do that will read of it. It is asked each time, for it may be
    /// another one since. Without the states of the last process all servers would be down after each reload.
    pub async fn check(&self) -> Check {
        let keeps_states = self.runtime.is_some() && self.state_file.is_some();
        let starts_down = keeps_states && Version::of(&self.haproxy).await >= Some(Version::INIT_STATE);
        Check { starts_down, ..self.policy.check.clone() }
    }

    /// What the servers of a configuration's generated sections inherit from what stands before these; none if no server
    /// can have it that is added at run time.
    pub fn inherited(&self, config: &str) -> Option<String> {
        let files = self.before.iter().map(std::fs::read_to_string);
        let mut text = files.collect::<Result<String, _>>().ok()?;
        text.push_str(
            config.split(&format!("\nbackend {}\n", self.policy.names.nodes())).next().unwrap_or_default(),
        );
        default_server(&text)
    }

    /// Takes out what wants a port that the template, another file of HAProxy's or another program has, and tells what
    /// that was. `old` is the configuration in effect.
    pub fn leave_out(&self, template: &Template, desired: &mut Desired, old: &str) -> Vec<Problem> {
        let planned = desired.problems.clone();
        let mut bound = bound_ports(template.text());
        for file in &self.before {
            bound.extend(std::fs::read_to_string(file).iter().flat_map(|text| bound_ports(text)));
        }
        leave_out_bound(desired, &bound);
        leave_out_busy(desired, &self.policy.bind, old);
        desired.problems.extend(absent(&self.policy.bind));
        desired.problems.iter().filter(|problem| !planned.contains(problem)).cloned().collect()
    }
}
