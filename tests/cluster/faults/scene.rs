//! The scene of one fault: a simulated cluster, the agent, and a load balancer that probes it all the time.

use super::table::Row;
use nodegate_kube_sim::Builder;
use nodegate_testbed::prober::{Probe, Prober, health, trail};
use nodegate_testbed::{Agent, Cluster, NODE, until, until_or};
use std::time::{Duration, Instant};

/// Short, to keep outages short; the kubelet renews its Lease twice a second to match.
const STALE_AFTER: Duration = Duration::from_secs(2);
pub(crate) const STALE_AFTER_ARG: &str = "--stale-after=2s";
/// The tolerance for that.
const GRACE: Duration = Duration::from_secs(1);
/// The longest time until the answers are correct again: a backoff of ten seconds, and up to five more for an
/// attempt that began before the repair.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(16);
/// The rate of the load balancer's probes.
const PROBES_A_SECOND: u32 = 50;
/// The number of probes before and during the fault: enough to tell one log line from one for each request.
const SOME: usize = 25;
/// A bound holds for an idle machine. On a busy one, each step of a recovery (connect, TLS, list, watch) may
/// be as late as the worst probe, which takes a step or two itself; on an idle one that is milliseconds.
const STEPS: u32 = 4;

pub(crate) const FRESH: &str = "200 fresh";
pub(crate) const STALE: &str = "200 stale";
pub(crate) const CORDONED: &str = "503 Unschedulable";

const WARNING: &str = "the cache is stale";
const RECOVERED: &str = "the cache follows the API server again";
const LOST: &str = "watch failed; retrying";

/// The API server of a scene.
pub(crate) trait Api {
    fn cordon(&self);
    fn uncordon(&self);
    /// Resets the count of requests.
    fn reset_counts(&self);
    fn requests(&self) -> u64;
    /// Returns the number of open watches.
    fn watches(&self) -> u64;
}

impl Api for Cluster {
    fn cordon(&self) {
        self.sim.cordon(NODE);
    }

    fn uncordon(&self) {
        self.sim.uncordon(NODE);
    }

    fn reset_counts(&self) {
        self.sim.counters().reset();
    }

    fn requests(&self) -> u64 {
        self.sim.counters().read().total()
    }

    fn watches(&self) -> u64 {
        self.sim.counters().read().watches
    }
}

pub(crate) struct Scene<A: Api = Cluster> {
    pub(crate) cluster: A,
    pub(crate) agent: Agent,
    pub(crate) prober: Prober,
    began: Instant,
    healed: Instant,
    row: Row,
}

/// Starts the cluster of most faults.
pub(crate) fn cluster() -> Cluster {
    Cluster::with(usual)
}

/// Sets up a kubelet that renews its Lease twice a second.
pub(crate) fn usual(builder: Builder) -> Builder {
    builder.kubelets(true).lease_interval(Duration::from_millis(500))
}

impl Scene {
    /// Starts an agent that has seen its Node ready and a heartbeat, with a load balancer. Its cache becomes
    /// stale soon.
    pub(crate) fn start() -> Self {
        Self::with(cluster(), &[STALE_AFTER_ARG])
    }

    /// Starts the same with the default `--stale-after`, for faults that must end before the cache is stale.
    pub(crate) fn patient() -> Self {
        Self::with(cluster(), &[])
    }

    pub(crate) fn with(cluster: Cluster, args: &[&str]) -> Self {
        let agent = cluster.agent(args);
        Self::of(cluster, agent)
    }
}

impl<A: Api> Scene<A> {
    pub(crate) fn of(cluster: A, agent: Agent) -> Self {
        agent.wait_ready();
        let heartbeat = r#"nodegate_watch_events_total{resource="leases",type="apply"}"#;
        until("a heartbeat", || agent.metric(heartbeat));
        Self::probed(cluster, agent)
    }

    pub(crate) fn probed(cluster: A, agent: Agent) -> Self {
        let prober = Prober::start(agent.address(), health, PROBES_A_SECOND, 1);
        prober.wait(SOME);
        let now = Instant::now();
        Self { cluster, agent, prober, began: now, healed: now, row: Row::default() }
    }

    /// Injects the fault.
    pub(crate) fn fault<T>(&mut self, inject: impl FnOnce(&Self) -> T) -> T {
        self.cluster.reset_counts();
        let injected = inject(self);
        self.began = Instant::now();
        self.healed = self.began;
        injected
    }

    /// Waits until some more probes are answered, and then repairs the fault.
    pub(crate) fn heal<T>(&mut self, repair: impl FnOnce(&Self) -> T) -> T {
        self.lasts();
        self.healed = Instant::now();
        repair(self)
    }

    /// Waits for some more probes.
    pub(crate) fn lasts(&self) {
        self.prober.wait(SOME);
    }

    /// Asserts that the agent declares the cache stale and fails open in time, with one warning and its
    /// metrics. `nodegate_fail_open_total` stays 0, because the last known facts of a ready node give the
    /// same answer.
    pub(crate) fn fails_open(&mut self) {
        self.notices(STALE, STALE_AFTER + GRACE);
        self.lasts();
        assert_eq!(self.agent.metric("nodegate_cache_stale"), Some(1.0));
        assert_eq!(self.agent.metric("nodegate_fail_open_total"), Some(0.0));
        self.logged_once(WARNING);
    }

    /// Asserts that a load balancer sees `answer`, and that no probe sent after the bound got another answer
    /// before.
    pub(crate) fn notices(&mut self, answer: &str, within: Duration) {
        let noticed = self.first(answer, self.began);
        let since = |probe: &&Probe| probe.sent >= self.began && probe.sent <= noticed.sent;
        let probes = self.prober.probes();
        let allowed = within + lag(probes.iter().filter(since)) * STEPS;
        let late = probes.iter().filter(since).find(|probe| {
            probe.told() != answer && probe.sent.saturating_duration_since(self.began) > allowed
        });
        assert!(
            late.is_none(),
            "{answer} is due {allowed:?} after the fault, but {:?} after it a probe was told {}\n{}",
            late.unwrap().sent - self.began,
            late.unwrap().saw,
            self.agent.log_text()
        );
        self.row.notice = Some(noticed.answered - self.began);
        self.row.bound = Some(within);
    }

    /// Waits until the agent shows the fault, which load balancers must not notice.
    pub(crate) fn notices_itself<T>(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&Agent) -> Option<T>,
    ) -> T {
        let found = until(what, || attempt(&self.agent));
        self.row.notice = Some(self.began.elapsed());
        found
    }

    /// Waits until the agent restarts its watch for this reason.
    pub(crate) fn restarts(&mut self, reason: &str) {
        self.restarts_often(reason, 1.0);
    }

    /// Waits until it has done so `times` times.
    pub(crate) fn restarts_often(&mut self, reason: &str, times: f64) {
        until(reason, || (restarts(&self.agent, reason) >= times).then_some(()));
        self.row.notice.get_or_insert(self.began.elapsed());
    }

    /// Asserts that a load balancer sees `answer` after the repair, that log and metrics report the recovery
    /// if the cache was stale, and that the agent then follows the Node.
    pub(crate) fn recovers(&mut self, answer: &str) {
        let first = self.first(answer, self.healed);
        self.is_back(first.answered);
        self.ends(first.answered);
        assert_eq!(self.agent.metric("nodegate_cache_stale"), Some(0.0));
        if self.agent.logged(WARNING) > 0 {
            self.logged_once(WARNING);
            self.logged_once(RECOVERED);
        }
        self.follows();
    }

    /// Waits until both watches are open again.
    pub(crate) fn watches_again(&mut self) {
        until("watches", || (self.cluster.watches() >= 2).then_some(()));
        self.is_back(Instant::now());
    }

    /// Asserts that the recovery came in time.
    fn is_back(&mut self, at: Instant) {
        let (took, probes) = (at - self.healed, self.prober.probes());
        let since = probes.iter().filter(|probe| probe.sent >= self.healed && probe.sent <= at);
        let allowed = BACK_WITHIN + lag(since) * STEPS;
        assert!(took <= allowed, "back after {took:?}, of {allowed:?}\n{}", self.agent.log_text());
        self.row.recover = Some(took);
    }

    /// Asserts that load balancers notice nothing, and that the agent follows the Node.
    pub(crate) fn goes_on(&mut self) {
        self.lasts();
        self.ends(Instant::now());
        self.follows();
    }

    /// Records the requests and the trail up to now.
    fn ends(&mut self, at: Instant) {
        self.row.requests.get_or_insert(self.cluster.requests());
        let seen: Vec<Probe> =
            self.prober.probes().into_iter().filter(|probe| probe.answered <= at).collect();
        self.row.trail = trail(&seen);
    }

    /// Asserts that the agent sees changes of the Node.
    pub(crate) fn follows(&self) {
        for (answer, change) in [(CORDONED, true), (FRESH, false)] {
            let now = Instant::now();
            if change {
                self.cluster.cordon();
            } else {
                self.cluster.uncordon();
            }
            self.first(answer, now);
        }
    }

    /// Returns the first probe sent after `from` that got `answer`.
    pub(crate) fn first(&self, answer: &str, from: Instant) -> Probe {
        let found = until_or(
            || self.prober.probes().into_iter().find(|probe| probe.sent >= from && probe.told() == answer),
            || format!("waited for {answer}; {:?}\n{}", self.prober.counts(), self.agent.log_text()),
        );
        // A probe that was sent before may still be in flight; there is one at a time.
        self.prober.wait(1);
        found
    }

    pub(crate) fn logged_once(&self, line: &str) {
        until(line, || (self.agent.logged(line) > 0).then_some(()));
        assert_eq!(self.agent.logged(line), 1, "one line, not one a request: {}", self.agent.log_text());
    }

    /// Asserts that the log has one line for the episode.
    pub(crate) fn lost_watch_is_logged_once(&self) {
        self.logged_once(LOST);
    }

    /// Asserts that no answer was stale.
    pub(crate) fn never_stale(&self) {
        assert_eq!(self.agent.logged(WARNING), 0, "{}", self.agent.log_text());
    }

    /// Returns the row; asserts this trail, and that every probe got an answer.
    pub(crate) fn row(mut self, trail: &[&str]) -> Row {
        self.prober.wait(1);
        self.prober.stop();
        let failed = self.prober.failed();
        let told = |probe: &Probe| {
            let after = probe.sent.saturating_duration_since(self.began);
            format!("{} sent {after:?} after the fault, {:?} later", probe.saw, probe.answered - probe.sent)
        };
        let failed: Vec<String> = failed.iter().map(told).collect();
        assert!(failed.is_empty(), "failed: {failed:?}\n{}", self.agent.log_text());
        assert_eq!(self.row.trail, trail, "{}", self.agent.log_text());
        assert_eq!(self.agent.get("/livez").status, 200);
        self.row.probes = self.prober.probes().len();
        self.row
    }
}

pub(crate) fn restarts(agent: &Agent, reason: &str) -> f64 {
    let name = format!(r#"nodegate_watch_restarts_total{{resource="nodes",reason="{reason}"}}"#);
    agent.metric(&name).unwrap_or_default()
}

/// Returns the largest delay of these probes by the machine.
fn lag<'a>(probes: impl Iterator<Item = &'a Probe>) -> Duration {
    probes.map(|probe| probe.answered - probe.due).max().unwrap_or_default()
}
