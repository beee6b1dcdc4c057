//! The loop that plans after each change of the cluster, applies the plan, and looks whether HAProxy still runs it.

use crate::failure::{Failure, Lasting};
use crate::haproxy::master::REFUSED;
use crate::haproxy::owner::{Outcome, Owner};
use crate::haproxy::states::checked;
use crate::plan::applied::Checked;
use crate::plan::desired::{INTENDED, Problem};
use crate::plan::observed::ServiceKey;
use crate::plan::planner::{Wanted, plan_after};
use crate::run::shared::Shared;
use crate::watch::Observed;
use nodegate_kube_follow::Backoff;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// The wait for other changes of the same moment.
const BURST: Duration = Duration::from_millis(200);
/// The interval between looks at HAProxy, at the file and at the template.
const LOOK: Duration = Duration::from_secs(2);
/// The maximum number of log lines of one change.
const MAX_LINES: usize = 50;

/// The reloads of the last hour, refused ones included. HAProxy ends a worker after 50 of them (`mworker-max-reloads`)
/// and after an hour (`hard-stop-after`), so their number is bounded that no connection younger than an hour is cut.
#[derive(Debug, Default)]
struct Pace(VecDeque<Instant>);

impl Pace {
    const HOUR: Duration = Duration::from_hours(1);
    /// The number of reloads within an hour after which they are rarer, and how much.
    const MANY: usize = 25;
    const RARER: u32 = 30;

    fn reloaded(&mut self, now: Instant) {
        while self.0.front().is_some_and(|at| now.duration_since(*at) > Self::HOUR) {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Returns the time of the next reload.
    fn next(&self, interval: Duration, now: Instant) -> Instant {
        let recent = self.0.iter().filter(|at| now.duration_since(**at) < Self::HOUR).count();
        let interval = if recent < Self::MANY { interval } else { interval * Self::RARER };
        self.0.back().map_or(now, |last| *last + interval)
    }
}

struct Applying {
    shared: Arc<Shared>,
    owner: Owner,
    wanted: Option<Wanted>,
    /// True while the plan, the template or HAProxy differ from what was applied last.
    is_due: bool,
    /// The time before which nothing is tried, after a failure.
    not_before: Instant,
    backoff: Backoff,
    pace: Pace,
    /// What the last look found.
    found: Checked,
    error: Lasting,
    elsewhere: Lasting,
    none_passes: Lasting,
    /// The problems that have a line in the log.
    reported: BTreeSet<Problem>,
}

pub(crate) async fn run(shared: Arc<Shared>, mut observed: Receiver<Observed>) {
    let Ok(mut reloads) = signal(SignalKind::hangup()) else { return };
    let mut task = Applying {
        owner: Owner::new(shared.setup.tools.clone()),
        shared,
        wanted: None,
        is_due: false,
        not_before: Instant::now(),
        backoff: Backoff::default(),
        pace: Pace::default(),
        found: Checked::default(),
        error: Lasting::new("can't apply the configuration; retrying", "the configuration is applied again"),
        elsewhere: Lasting::new(
            "HAProxy does not prove the configuration",
            "HAProxy proves the configuration again",
        ),
        none_passes: Lasting::new("no node passes HAProxy's check", "nodes pass HAProxy's check again"),
        reported: BTreeSet::new(),
    };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        task.shared.beat.send_replace(Instant::now());
        tokio::select! {
            changed = observed.changed() => {
                if changed.is_err() { return }
                sleep(BURST).await;
                let now = observed.borrow_and_update().clone();
                task.plan(&now).await;
            }
            Some(()) = reloads.recv() => {
                tracing::info!("SIGHUP: HAProxy loads certificates and other files again");
                task.owner.force();
                task.is_due = true;
            }
            () = sleep_until(task.not_before), if task.may_apply() => {}
            _ = look.tick() => task.look().await,
        }
        if task.may_apply() && Instant::now() >= task.not_before {
            task.apply().await;
        }
        task.report();
        task.shared.pending.set(task.is_due.into());
    }
}

impl Applying {
    fn may_apply(&self) -> bool {
        self.owner.has_started && self.is_due && self.wanted.is_some()
    }

    /// Makes a plan of what the watches report. If it is another one, it is due.
    async fn plan(&mut self, now: &Observed) {
        let Some(facts) = now.facts() else { return };
        let applied = &self.owner.saved.facts;
        // Weights are set before the whole plan is applied.
        let cordons = self.wanted.as_ref().map_or(&applied.cordons, |wanted| &wanted.facts.cordons);
        let deleted = |key: &ServiceKey| now.deleted.contains(key);
        let wanted = plan_after((applied, cordons), &facts, deleted, &self.shared.setup.policy);
        let is_same = self.wanted.as_ref().is_some_and(|before| before.plan == wanted.plan);
        // Facts may have changed on which no plan depends yet.
        let wanted = self.wanted.insert(wanted);
        if is_same {
            return;
        }
        self.shared.known.send_modify(|known| known.desired = Some(wanted.plan.clone()));
        if let Err(failure) = self.owner.set_weights(wanted).await {
            tracing::debug!(%failure, "weights wait for the whole configuration");
        }
        self.is_due = true;
        // The change may be what an operator does about the failure.
        self.not_before = self.not_before.min(Instant::now() + self.shared.setup.tools.reload_interval);
    }

    /// Logs each problem when it begins and when it ends.
    fn report(&mut self) {
        let plan = self.wanted.iter().map(|wanted| &wanted.plan);
        let out = plan.clone().flat_map(|plan| &plan.nodes).filter_map(|node| {
            let (verdict, reason) = node.out.as_ref()?;
            let text = format!("gets no new connections: {reason}");
            Some(Problem { about: node.name.clone(), kind: verdict.as_str(), text, unpublished: false })
        });
        let down = self.shared.known.borrow().checked.down.clone();
        let left_out = self.owner.applied.iter().flat_map(|applied| &applied.left_out);
        let problems = plan.clone().flat_map(|plan| &plan.problems).chain(left_out).chain(&down);
        let problems = problems.filter(|problem| problem.kind != INTENDED).cloned();
        let now: BTreeSet<Problem> = problems.chain(out).collect();
        for Problem { about, kind, text, .. } in now.difference(&self.reported).take(MAX_LINES) {
            tracing::warn!(about, kind, "{text}");
        }
        for Problem { about, kind, text, .. } in self.reported.difference(&now).take(MAX_LINES) {
            tracing::info!(about, kind, "no longer: {text}");
        }
        self.reported = now;
    }

    /// Looks whether HAProxy runs what was applied, and whether the template has changed.
    async fn look(&mut self) {
        if let Err(failure) = self.owner.begin().await {
            self.failed(&failure);
        }
        if self.wanted.is_none() {
            return;
        }
        self.is_due |= self.owner.is_improvable();
        match self.owner.confirm().await {
            Ok(is_same_worker) => {
                self.is_due |= !is_same_worker;
                self.elsewhere.end();
                self.look_at_servers().await;
            }
            Err(failure) => {
                self.is_due = true;
                if self.shared.known.borrow().applied.is_ok() && failure.kind == "foreign" {
                    self.shared.failed(failure.kind);
                }
                if self.owner.applied.is_some() {
                    self.elsewhere.tell(&failure.text);
                }
                self.unproven(failure.text);
            }
        }
    }

    async fn look_at_servers(&mut self) {
        let Some(applied) = &self.owner.applied else { return };
        let Some(mut found) = checked(&self.shared.setup.tools.master, &applied.plan).await else { return };
        let was_up = self.found.was_up.iter().filter(|backend| applied.plan.backends.contains_key(*backend));
        found.was_up.extend(was_up.cloned());
        // New servers may have no result yet.
        let before = std::mem::replace(&mut self.found, found.clone());
        if !found.no_node_passes() {
            self.none_passes.end();
        } else if before.no_node_passes() {
            self.none_passes.tell("the last resort serves, if there is one; see --explain");
        }
        found.down.retain(|down| before.down.iter().any(|before| before.about == down.about));
        self.shared.known.send_if_modified(|known| {
            let is_news = known.checked != found;
            known.checked = found;
            is_news
        });
    }

    fn unproven(&self, reason: String) {
        let known = &self.shared.known;
        known.send_if_modified(|known| std::mem::replace(&mut known.applied, Err(reason)).is_ok());
    }

    async fn apply(&mut self) {
        let Some(wanted) = &self.wanted else { return };
        let interval = self.shared.setup.tools.reload_interval;
        let next = self.pace.next(interval, Instant::now());
        match self.owner.apply(wanted, Instant::now() >= next).await {
            Ok(Outcome::Early) => self.not_before = next,
            Ok(outcome) => self.succeeded(outcome),
            Err(failure) => {
                if [REFUSED, "proof"].contains(&failure.kind) {
                    self.pace.reloaded(Instant::now());
                }
                self.failed(&failure);
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.shared.failed(failure.kind);
        self.error.tell(&failure.text);
        if self.owner.applied.is_none() {
            self.unproven(failure.text.clone());
        }
        self.not_before = Instant::now() + self.backoff.wait();
    }

    fn succeeded(&mut self, outcome: Outcome) {
        self.error.end();
        self.backoff.reset();
        self.is_due = outcome == Outcome::Absent;
        let Some(applied) = self.owner.applied.clone().filter(|_| !self.is_due) else {
            self.not_before = Instant::now() + LOOK;
            return self.unproven("HAProxy is not running".to_owned());
        };
        if outcome == Outcome::Reloaded {
            self.shared.reloads.inc();
            self.pace.reloaded(Instant::now());
        }
        if outcome == Outcome::Reloaded || self.shared.known.borrow().applied.is_err() {
            let (frontends, hash) = (applied.plan.frontends.len(), &applied.hash);
            tracing::info!(frontends, hash, "HAProxy runs the configuration");
        }
        self.shared.known.send_modify(|known| known.applied = Ok(applied));
        self.elsewhere.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_reloads_take_an_hour() {
        let (mut pace, began, interval) = (Pace::default(), Instant::now(), Duration::from_secs(5));
        let mut now = began;
        let mut times = Vec::new();
        while times.len() < 200 {
            now = pace.next(interval, now).max(now);
            pace.reloaded(now);
            times.push(now);
        }
        assert_eq!(times[1] - times[0], interval);
        assert!(times.windows(50).all(|fifty| fifty[49] - fifty[0] > Pace::HOUR), "{times:?}");
        // After a quiet hour, the first is at once again.
        let later = now + 2 * Pace::HOUR;
        assert!(pace.next(interval, later) <= later);
    }
}
