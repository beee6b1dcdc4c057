//! Applies a plan: one file, one check, one reload, one proof. If one fails, the old file and processes stay.

use crate::failure::Failure;
use crate::haproxy::config_file::{ConfigFile, Stamp};
use crate::haproxy::launch::{Launch, check, run};
use crate::haproxy::master::{ABSENT, Master, RELOAD};
use crate::haproxy::states::States;
use crate::haproxy::template;
use crate::haproxy::template::leave_out;
use crate::plan::{
    Backend, CheckKind, DEFAULT_TIMEOUTS, Desired, MARKER, Passing, Problem, Timeouts, hash_of, names,
    render, states_file, timeouts,
};
use nodegate_program::duration;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::Instant;

/// The range of `--reload-interval`.
const RELOAD_INTERVAL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_mins(10);
/// How long the ports of a HAProxy that has ended count as its own: its workers may end later, or it
/// restarts.
const ENDING: Duration = Duration::from_secs(10);

/// The places of the files and of HAProxy.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tools {
    /// File to write, the only one that HAProxy loads (-f). A file that has no generated part is never replaced.
    /// The states of servers are kept beside it
    #[arg(long, env = "NODEGATE_HAPROXY_CONFIG", value_name = "FILE")]
    #[arg(default_value = "/var/lib/nodegate-haproxy/haproxy.cfg")]
    pub(crate) config: ConfigFile,

    /// Your part of the file, kept to the byte; an edit is applied like a changed Service. Without it: the
    /// generated sections alone
    #[arg(long, env = "NODEGATE_HAPROXY_TEMPLATE", value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,

    /// HAProxy's program, for haproxy -c; "none" leaves the check to HAProxy's reload
    #[arg(long, env = "NODEGATE_HAPROXY_BINARY", value_name = "FILE", default_value = "haproxy")]
    pub(crate) haproxy: PathBuf,

    #[command(flatten)]
    pub(crate) master: Master,

    /// Command that reloads HAProxy, instead of the master socket; words are split at spaces, and exit status 0
    /// is success
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_COMMAND", value_name = "COMMAND")]
    pub(crate) reload_command: Option<String>,

    /// Shortest time between two reloads; the first change after that is applied at once
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration(RELOAD_INTERVAL))]
    pub(crate) reload_interval: Duration,

    /// Timeouts of the generated sections: connect, client, server, check, http-request, http-keep-alive, queue,
    /// tunnel, client-fin, server-fin. Those that are not named keep their default
    #[arg(long, env = "NODEGATE_HAPROXY_TIMEOUTS", value_name = "NAME=TIME,…")]
    #[arg(default_value = DEFAULT_TIMEOUTS, value_parser = timeouts)]
    pub(crate) timeouts: Timeouts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Unchanged,
    /// HAProxy has reloaded and proves that it runs it.
    Reloaded,
    /// The file is in place, and HAProxy is not running.
    Written,
}

#[derive(Debug)]
pub(crate) struct Applier {
    tools: Tools,
    /// The hash and the version of the file that was written or adopted last.
    written: Option<(String, Option<Stamp>)>,
    /// The frontends of the last plan that were left out, with the reasons.
    pub(crate) left_out: BTreeSet<Problem>,
    /// The time since when HAProxy has not been running.
    absent_since: Option<Instant>,
}

impl Applier {
    pub(crate) fn new(tools: Tools) -> Self {
        Self { tools, written: None, left_out: BTreeSet::new(), absent_since: None }
    }

    pub(crate) fn hash(&self) -> Option<&str> {
        self.written.as_ref().map(|(hash, _)| hash.as_str())
    }

    pub(crate) fn template_stamp(&self) -> Option<Stamp> {
        ConfigFile::new(self.tools.template.clone()?).stamp()
    }

    /// Checks that the running HAProxy runs the file that was written last. The error says why it is not proven.
    pub(crate) async fn prove(&self) -> Result<(), Failure> {
        let Tools { config, master, .. } = &self.tools;
        let Some((hash, stamp)) = &self.written else {
            return Err(Failure::new("proof", "no configuration has been applied yet"));
        };
        if !master.runs(hash).await? {
            return Err(master.runs_another().await);
        }
        if config.stamp() == *stamp {
            return Ok(());
        }
        Err(Failure::new("foreign", format!("another program has changed {}", config.path.display())))
    }

    /// Applies a plan, and leaves the frontends out of it that HAProxy can't have now.
    pub(crate) async fn apply(&mut self, desired: &mut Desired) -> Result<Applied, Failure> {
        let Tools { config, master, timeouts, .. } = &self.tools;
        let template = template::read(self.tools.template.as_deref())?;
        let disk = config.read()?;
        let bytes = disk.as_deref().unwrap_or_default();
        let hash = hash_of(bytes);
        // A copy of the template: nothing is lost.
        let ours = bytes.trim_ascii().is_empty()
            || bytes == template
            || String::from_utf8_lossy(bytes).contains(MARKER);
        if hash.is_none() && !ours {
            let what = format!(
                "{} has no generated part, so a person or another program wrote it; nodegate-haproxy does not \
                 replace it. Make it the --template, and remove it",
                config.path.display()
            );
            return Err(Failure::new("foreign", what));
        }
        let launch = master.launch().await;
        let is_running = match master.processes().await {
            Ok(_) => true,
            Err(failure) if failure.kind == ABSENT => false,
            Err(failure) => return Err(failure),
        };
        let proven = match &hash {
            Some(hash) if is_running => master.runs(hash).await?,
            _ => false,
        };
        self.absent_since = (!is_running).then(|| self.absent_since.unwrap_or_else(Instant::now));
        let has_ended = self.absent_since.is_some_and(|since| since.elapsed() > ENDING);
        let runs = if has_ended { &[] } else { bytes };
        self.left_out = leave_out(desired, &template, launch.as_ref(), runs);
        let (new, hash) = render(&template, desired, timeouts, &config.path);
        let is_known = bytes == new && (proven || !is_running);
        if !is_known {
            self.put_in_place(&new, &hash, desired, (launch.as_ref(), is_running), disk).await?;
        }
        self.written = Some((hash, self.tools.config.stamp()));
        Ok(match (is_known, is_running) {
            (_, false) => Applied::Written,
            (true, true) => Applied::Unchanged,
            (false, true) => Applied::Reloaded,
        })
    }

    /// Checks a file, replaces the one before, and reloads a running HAProxy.
    async fn put_in_place(
        &mut self,
        bytes: &[u8],
        hash: &str,
        desired: &Desired,
        (launch, is_running): (Option<&Launch>, bool),
        before: Option<Vec<u8>>,
    ) -> Result<(), Failure> {
        let Tools { config, master, haproxy, .. } = &self.tools;
        let states = states(master, desired, |_| is_running).await?;
        let states_file = ConfigFile::new(states_file(&config.path, hash));
        states_file.replace(states.compose(desired).as_bytes())?;
        let candidate = config.prepare(bytes)?;
        if haproxy != Path::new("none") {
            check(haproxy, launch, candidate.path()).await?;
        }
        config.commit(candidate)?;
        if is_running && let Err(failure) = self.reload(hash).await {
            if let Some(before) = before {
                self.tools.config.replace(&before)?;
            }
            let stamp = self.tools.config.stamp();
            self.written = self.written.take().map(|(hash, _)| (hash, stamp));
            return Err(failure);
        }
        self.remove_old_states(&states_file.path);
        Ok(())
    }

    async fn reload(&self, hash: &str) -> Result<(), Failure> {
        let Tools { master, reload_command, .. } = &self.tools;
        let mut words = reload_command.iter().flat_map(|command| command.split_whitespace());
        let Some(program) = words.next() else {
            return master.reload(hash).await;
        };
        let mut reload = tokio::process::Command::new(program);
        reload.args(words).stdin(Stdio::null());
        let failed = |why: String| Failure::new("reload", format!("--reload-command failed: {why}"));
        run(reload, RELOAD).await.map_err(failed)?;
        master.wait_for_proof(hash).await
    }

    /// Removes the state files of other configurations. One that remains is read by none.
    fn remove_old_states(&self, kept: &Path) {
        let config = &self.tools.config.path;
        let (Some(directory), Some(name)) = (config.parent(), config.file_name()) else { return };
        let prefix = format!("{}.", name.to_string_lossy());
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let hash = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".states"));
            if hash.is_some_and(|hash| hash.len() == 32) && entry.path() != kept {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns which nodes pass HAProxy's check in any backend. `None` if it can't be asked, or has no check.
pub(crate) async fn passing(tools: &Tools, desired: &Desired) -> Option<Passing> {
    let is_tcp = desired.check.kind == CheckKind::Tcp;
    let states =
        states(&tools.master, desired, |backend| is_tcp || backend.name == names::NODES).await.ok()?;
    let mut passing = Passing::new();
    for (node, passes) in states.passing() {
        *passing.entry(node.to_owned()).or_default() |= passes;
    }
    Some(passing).filter(|passing| !passing.is_empty())
}

/// Asks for the states of the servers with a check of their own, in these backends.
async fn states(
    master: &Master,
    desired: &Desired,
    counts: impl Fn(&Backend) -> bool,
) -> Result<States, Failure> {
    let mut states = States::default();
    for backend in desired.backends.values().filter(|b| b.own_check().is_some() && counts(b)) {
        states.add(&master.ask_worker(&format!("show servers state {}", backend.name)).await?);
    }
    Ok(states)
}
