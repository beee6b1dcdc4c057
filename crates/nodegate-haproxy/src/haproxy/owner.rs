//! The owner of what HAProxy runs: one file, one reload or a few weights, and the confirmation that HAProxy has loaded it:
//! the file's last, empty backend, named by the hash of the file. If a step fails, the last good file and its processes
//! stay. A `Desired` is a plan, `Wanted` the plan with the cluster that it was made from, and `Applied` what HAProxy was
//! confirmed to run.

use crate::failure::Failure;
use crate::haproxy::config_file::{ConfigFile, Stamp};
use crate::haproxy::master::{ABSENT, Master, REFUSED, check, runs_another};
use crate::haproxy::saved::Saved;
use crate::haproxy::states::{States, weight_commands};
use crate::haproxy::template::{leave_out, read};
use crate::plan::applied::Applied;
use crate::plan::desired::Desired;
use crate::plan::observed::Facts;
use crate::plan::planner::Wanted;
use crate::plan::policy::{DEFAULT_TIMEOUTS, Timeouts, timeouts};
use crate::plan::render::{EMPTY_STATES, MARKER, STATES, has_template, hash_of, render};
use crate::plan::template::{Template, sockets};
use nodegate_program::duration;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const RELOAD_INTERVAL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_mins(10);
/// How long the ports of a HAProxy that has ended count as its own: its workers may end later, or it restarts.
const ENDING: Duration = Duration::from_secs(10);
/// The time after which HAProxy gets a file again that it has refused. Each reload, a refused one included, counts for
/// `mworker-max-reloads`.
const REFUSED_FOR: Duration = Duration::from_mins(10);
/// The maximum number of weights that are set one by one: 5,000 take two seconds.
const MAX_WEIGHTS: usize = 5000;

/// The places of the files and of HAProxy.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Tools {
    /// File to write, the only one that HAProxy loads (-f). A file that has no generated part is never replaced.
    /// What nodegate-haproxy has to know after a restart is kept beside it
    #[arg(long, env = "NODEGATE_HAPROXY_CONFIG", value_name = "FILE")]
    #[arg(default_value = "/var/lib/nodegate-haproxy/haproxy.cfg")]
    pub(crate) config: ConfigFile,

    /// Your part of the file, kept to the byte; an edit is applied like a changed Service. Without it: the
    /// generated sections alone
    #[arg(long, env = "NODEGATE_HAPROXY_TEMPLATE", value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,

    /// HAProxy's program, for haproxy -c while HAProxy does not run, and before it loads another template; with "none",
    /// the reload alone judges, and the last good file stays until HAProxy runs
    #[arg(long, env = "NODEGATE_HAPROXY_BINARY", value_name = "FILE", default_value = "haproxy")]
    pub(crate) haproxy: PathBuf,

    #[command(flatten)]
    pub(crate) master: Master,

    /// Shortest time between two reloads; the first change after that is applied at once. After 25 reloads within an
    /// hour, it is 30 times as long
    #[arg(long, env = "NODEGATE_HAPROXY_RELOAD_INTERVAL", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration(RELOAD_INTERVAL))]
    pub(crate) reload_interval: Duration,

    /// Timeouts of the generated sections: connect, client, server, check, http-request, http-keep-alive, queue,
    /// tunnel, client-fin, server-fin. Those that are not named keep their default
    #[arg(long, env = "NODEGATE_HAPROXY_TIMEOUTS", value_name = "NAME=TIME,…")]
    #[arg(default_value = DEFAULT_TIMEOUTS, value_parser = timeouts)]
    pub(crate) timeouts: Timeouts,
}

impl Tools {
    /// Checks a file that HAProxy has not loaded, if `--haproxy` names a program for that.
    async fn check(&self, file: &[u8]) -> Result<(), Failure> {
        if self.haproxy == Path::new("none") {
            return Ok(());
        }
        check(&self.haproxy, self.config.prepare(file)?.path()).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// HAProxy runs it, without a reload.
    Runs,
    /// HAProxy has reloaded and proves that it runs it.
    Reloaded,
    /// It needs a reload, for which it is too early.
    Early,
    /// HAProxy is not running, and will load it.
    Absent,
}

#[derive(Debug, Default)]
pub(crate) struct Owner {
    tools: Tools,
    /// True after [`Owner::begin`].
    pub(crate) has_started: bool,
    /// What HAProxy has proven last.
    pub(crate) applied: Option<Arc<Applied>>,
    /// The hash and the version of the file in its place.
    written: Option<(String, Option<Stamp>)>,
    /// The facts of the plan that HAProxy runs, for the next process, too.
    pub(crate) saved: Saved,
    /// The version of the template that was read last.
    template: Option<Stamp>,
    /// The time since when HAProxy has not been running.
    absent_since: Option<Instant>,
    /// The hash of a file that HAProxy has refused, the time, and its words.
    refused: Option<(String, Instant, String)>,
    /// True while a reload is due although the file is the same.
    is_forced: bool,
}

impl Owner {
    /// Takes over what an earlier process has left.
    pub(crate) fn new(tools: Tools) -> Self {
        Self { saved: Saved::load(&tools.config), tools, ..Self::default() }
    }

    /// Asks for a reload, because files that the template names have changed.
    pub(crate) fn force(&mut self) {
        (self.is_forced, self.refused) = (true, None);
    }

    fn template_stamp(&self) -> Option<Stamp> {
        ConfigFile { path: self.tools.template.clone()? }.stamp()
    }

    /// Returns true if what HAProxy runs may be improved although the cluster is the same: the template has changed, or
    /// something was left out, such as a port that another program had.
    pub(crate) fn is_improvable(&self) -> bool {
        let left_out = self.applied.as_ref().map(|applied| !applied.left_out.is_empty());
        left_out.is_some_and(|some| some || self.template != self.template_stamp())
    }

    /// Checks that the running HAProxy runs the file in its place. The error says why it is not proven. Returns false if
    /// its worker is another one than before.
    pub(crate) async fn confirm(&self) -> Result<bool, Failure> {
        let Tools { config, master, .. } = &self.tools;
        let Some((hash, _)) = &self.written else {
            return Err(Failure::new("proof", "no configuration has been applied yet"));
        };
        if !master.runs(hash).await? {
            return Err(runs_another());
        }
        if self.has_foreign_file() {
            let what = format!("another program has changed {}", config.path.display());
            return Err(Failure::new("foreign", what));
        }
        let worker = master.worker().await?;
        Ok(self.applied.as_ref().is_some_and(|applied| applied.worker == worker))
    }

    /// Returns true if another program has changed the file since this one wrote it.
    fn has_foreign_file(&self) -> bool {
        self.written.as_ref().is_some_and(|(_, stamp)| *stamp != self.tools.config.stamp())
    }

    /// Completes or undoes the reload of an earlier process. Without a file and a HAProxy, writes the template with an empty
    /// generated part: the way to the API server may be one of the template's own frontends.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        if self.has_started {
            return Ok(());
        }
        self.recover().await?;
        let is_absent = self.worker().await?.is_none();
        if is_absent && self.tools.config.read()?.is_none_or(|bytes| bytes.trim_ascii().is_empty()) {
            self.apply(&Wanted::default(), false).await?;
        }
        self.has_started = true;
        Ok(())
    }

    /// Ends a reload during which an earlier process was killed: HAProxy runs the new file, or the last one comes back.
    async fn recover(&mut self) -> Result<(), Failure> {
        let Tools { config, master, .. } = &self.tools;
        self.clear_states()?;
        let Some(last) = self.last_good().read()? else { return Ok(()) };
        // A file without a hash is not one that this program has written: no HAProxy runs it.
        let hash = config.read()?.as_deref().and_then(hash_of).unwrap_or_default();
        if !master.runs(&hash).await.unwrap_or(false) {
            config.replace(&last)?;
        }
        self.last_good().remove();
        Ok(())
    }

    /// Leaves no states: a HAProxy that starts again begins with its checks. It warns of a file that is missing.
    fn clear_states(&self) -> Result<(), Failure> {
        let file = self.tools.config.beside(STATES);
        let is_empty = file.read()?.is_some_and(|bytes| bytes == EMPTY_STATES.as_bytes());
        if is_empty { Ok(()) } else { file.replace(EMPTY_STATES.as_bytes()) }
    }

    /// The file that HAProxy had before, during a reload.
    fn last_good(&self) -> ConfigFile {
        self.tools.config.beside("last")
    }

    /// Returns the newest worker, or `None` if HAProxy is not running.
    async fn worker(&self) -> Result<Option<u32>, Failure> {
        let worker = self.tools.master.worker().await.map(Some);
        worker.or_else(|failure| if failure.kind == ABSENT { Ok(None) } else { Err(failure) })
    }

    /// Gives the servers that HAProxy has their new weights before anything else changes, and writes them into the
    /// file. If that takes a reload, nothing happens yet.
    pub(crate) async fn set_weights(&mut self, wanted: &Wanted) -> Result<(), Failure> {
        let (Some(applied), Some(worker)) = (&self.applied, self.worker().await?) else { return Ok(()) };
        let mut next = Applied::clone(applied);
        next.plan.take_weights(&wanted.plan);
        if next.plan != applied.plan || worker != applied.worker {
            // Before the weights: the next process brings no node back that they have taken out.
            let cordons = wanted.facts.cordons.clone();
            self.saved.save(&next.hash, &Facts { cordons, ..self.saved.facts.clone() });
            let Tools { config, timeouts, .. } = &self.tools;
            (next.file, _) = render(&next.template, &next.plan, timeouts, &config.path);
            next.worker = worker;
            self.adjust(&next).await?;
        }
        Ok(())
    }

    /// Sets weights until the worker has those of a configuration, if it runs the rest of it. Returns false if that takes
    /// a reload.
    async fn adjust(&mut self, next: &Applied) -> Result<bool, Failure> {
        let Tools { config, master, .. } = &self.tools;
        let is_before = |before: &&Arc<Applied>| before.worker == next.worker && before.hash == next.hash;
        let before = self.applied.as_ref().filter(is_before);
        let commands = weight_commands(before.map(|before| &before.plan), &next.plan);
        // HAProxy may have loaded a file of another program, whose last backend is still ours.
        let is_foreign = before.is_none() && self.has_foreign_file();
        if commands.len() > MAX_WEIGHTS || is_foreign || !master.runs(&next.hash).await? {
            return Ok(false);
        }
        let disk = config.read()?.unwrap_or_default();
        if self.ensure_ours(&disk, &next.template).is_ok() {
            if disk != next.file {
                config.replace(&next.file)?;
            }
            self.written = Some((next.hash.clone(), config.stamp()));
        }
        master.set(&commands).await?;
        self.applied = Some(Arc::new(next.clone()));
        Ok(true)
    }

    /// Applies a plan, and leaves the frontends out of it that HAProxy can't have now.
    pub(crate) async fn apply(&mut self, wanted: &Wanted, may_reload: bool) -> Result<Outcome, Failure> {
        self.set_weights(wanted).await?;
        self.template = self.template_stamp();
        let template = read(self.tools.template.as_deref())?;
        let disk = self.tools.config.read()?.unwrap_or_default();
        self.ensure_ours(&disk, &template)?;
        let worker = self.worker().await?;
        self.absent_since = worker.is_none().then(|| self.absent_since.unwrap_or_else(Instant::now));
        let loaded = match &self.applied {
            _ if self.absent_since.is_some_and(|since| since.elapsed() > ENDING) => &[][..],
            Some(applied) => &applied.file,
            None => &disk,
        };
        let mut plan = Desired::clone(&wanted.plan);
        let left_out = leave_out(&mut plan, &template, &sockets(loaded));
        let (file, hash) = render(&template, &plan, &self.tools.timeouts, &self.tools.config.path);
        let mut next = Applied { template, plan, left_out, file, hash, worker: worker.unwrap_or_default() };
        if worker.is_none() {
            self.put_in_place(&next, &disk).await?;
            return Ok(Outcome::Absent);
        }
        let mut outcome = Outcome::Runs;
        if self.is_forced || !self.adjust(&next).await? {
            if !may_reload {
                return Ok(Outcome::Early);
            }
            self.reload(&next, disk).await?;
            next.worker = self.tools.master.worker().await?;
            self.written = Some((next.hash.clone(), self.tools.config.stamp()));
            self.applied = Some(Arc::new(next.clone()));
            outcome = Outcome::Reloaded;
        }
        self.saved.save(&next.hash, &wanted.facts);
        (self.refused, self.is_forced) = (None, false);
        Ok(outcome)
    }

    fn ensure_ours(&self, disk: &[u8], template: &Template) -> Result<(), Failure> {
        // A copy of the template: nothing is lost.
        let ours = disk.trim_ascii().is_empty()
            || disk == template.bytes
            || String::from_utf8_lossy(disk).contains(MARKER);
        if ours {
            return Ok(());
        }
        let what = format!(
            "{} has no generated part, so a person or another program wrote it; nodegate-haproxy does not \
             replace it. Make it the --template, and remove it",
            self.tools.config.path.display()
        );
        Err(Failure::new("foreign", what))
    }

    /// Puts a file in place for a HAProxy that is not running.
    async fn put_in_place(&mut self, next: &Applied, disk: &[u8]) -> Result<(), Failure> {
        let Tools { config, haproxy, .. } = &self.tools;
        let has = hash_of(disk);
        let is_good = has.is_some() && has == self.saved.hash;
        let stays = disk == next.file || (is_good && haproxy == Path::new("none"));
        if !stays {
            self.tools.check(&next.file).await?;
            config.replace(&next.file)?;
        }
        let hash = has.filter(|_| stays).unwrap_or_else(|| next.hash.clone());
        self.written = Some((hash, config.stamp()));
        Ok(())
    }

    /// Checks a file before HAProxy does, unless only the generated part has changed: a refused reload costs, because HAProxy
    /// 3.1 and later pause the running worker at the next one.
    async fn judge(&self, next: &Applied, before: &[u8]) -> Result<(), Failure> {
        if let Some((hash, at, said)) = &self.refused
            && *hash == next.hash
            && at.elapsed() < REFUSED_FOR
        {
            let what = format!("{said}; it gets it again after 10 minutes, or a change");
            return Err(Failure::new("check", what));
        }
        if has_template(before, &next.template) && !self.is_forced {
            return Ok(());
        }
        match self.tools.check(&next.file).await {
            // Where `haproxy -c` refuses the file that runs, or there are variables, the environment of HAProxy counts.
            Err(failure)
                if !next.template.bytes.contains(&b'$') && self.tools.check(before).await.is_ok() =>
            {
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Replaces the file and reloads HAProxy. If it refuses the file, the last good one comes back.
    async fn reload(&mut self, next: &Applied, disk: Vec<u8>) -> Result<(), Failure> {
        let before = self.applied.as_ref().map_or(disk, |applied| applied.file.clone());
        self.judge(next, &before).await?;
        let Tools { config, master, .. } = &self.tools;
        let states = States::read(master, &next.plan).await?;
        let (last, states_file) = (self.last_good(), config.beside(STATES));
        if !before.is_empty() {
            last.replace(&before)?;
        }
        let loaded = async {
            config.replace(&next.file)?;
            states_file.replace(states.compose(&next.plan).as_bytes())?;
            master.reload(&next.hash).await
        };
        let result = loaded.await;
        let cleared = self.clear_states();
        if let Err(failure) = result {
            if before.is_empty() {
                config.remove();
            } else {
                config.replace(&before)?;
            }
            last.remove();
            self.written = self.written.take().map(|(hash, _)| (hash, config.stamp()));
            if failure.kind == REFUSED {
                self.refused = Some((next.hash.clone(), Instant::now(), failure.text.clone()));
            }
            return Err(failure);
        }
        last.remove();
        cleared
    }
}
