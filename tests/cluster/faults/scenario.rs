//! The scenario of one fault: a simulated cluster, the agent, and a load balancer that probes it all the time.

use nodegate_kube_sim::Sim;
use nodegate_testbed::prober::{Probe, Prober, health, lag, trail};
use nodegate_testbed::{Agent, NODE, until, until_or};
use std::time::{Duration, Instant};

/// Short, to keep outages short; the kubelet renews its Lease twice a second to match.
const STALE_AFTER: Duration = Duration::from_secs(2);
/// For faults that must end before the cache is stale, an agent has no arguments.
pub(crate) const SOON_STALE: &[&str] = &["--stale-after=2s"];
const GRACE: Duration = Duration::from_secs(1);
/// To detect and replace a connection whose packets vanish: 4 s for the kernel, and the first backoff.
pub(crate) const REPLACED: Duration = Duration::from_secs(6);
/// The longest time until the answers are correct again: a backoff of ten seconds, and up to five more for an
/// attempt that began before the repair.
const BACK_WITHIN: Duration = Duration::from_secs(16);
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
pub(crate) const LOST: &str = "watch failed; retrying";

pub(crate) struct Scenario {
    pub(crate) cluster: nodegate_testbed::Scenario,
    pub(crate) agent: Agent,
    pub(crate) prober: Prober,
    began: Instant,
    healed: Instant,
}

/// Starts a cluster whose kubelet renews its Lease twice a second.
pub(crate) fn cluster() -> nodegate_testbed::Scenario {
    nodegate_testbed::Scenario::with(|builder| {
        builder.kubelets(true).lease_interval(Duration::from_millis(500))
    })
}

impl Scenario {
    pub(crate) fn start(args: &[&str]) -> Self {
        let cluster = cluster();
        let agent = cluster.agent(args);
        Self::of(cluster, agent)
    }

    /// Waits until this agent has seen its Node ready and a heartbeat.
    pub(crate) fn of(cluster: nodegate_testbed::Scenario, agent: Agent) -> Self {
        agent.wait_ready();
        let heartbeat = r#"nodegate_watch_events_total{resource="leases",type="apply"}"#;
        until("a heartbeat", || agent.metric(heartbeat));
        let prober = Prober::start(agent.address(), health, PROBES_A_SECOND, 1);
        prober.wait(SOME);
        let now = Instant::now();
        Self { cluster, agent, prober, began: now, healed: now }
    }

    pub(crate) fn fault<T>(&mut self, inject: impl FnOnce(&Self) -> T) -> T {
        self.cluster.sim.counters().reset();
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

    pub(crate) fn lasts(&self) {
        self.prober.wait(SOME);
    }

    /// Asserts that the agent declares the cache stale and fails open in time, with one warning and its
    /// metrics. `nodegate_fail_open_total` stays 0, because the last known facts of a ready node give the
    /// same answer.
    pub(crate) fn fails_open(&self) {
        self.notices(STALE, STALE_AFTER + GRACE);
        self.lasts();
        assert_eq!(self.agent.metric("nodegate_cache_stale"), Some(1.0));
        assert_eq!(self.agent.metric("nodegate_fail_open_total"), Some(0.0));
        self.agent.logs_once(WARNING);
    }

    /// Asserts that a load balancer sees `answer`, and that no probe after the bound got another one before.
    pub(crate) fn notices(&self, answer: &str, within: Duration) {
        let noticed = self.first(answer, self.began);
        let since = |probe: &&Probe| probe.sent >= self.began && probe.sent <= noticed.sent;
        let probes = self.prober.probes();
        let allowed = within + lag(probes.iter().filter(since)) * STEPS;
        let is_late = |probe: &&Probe| probe.result() != answer && probe.sent > self.began + allowed;
        if let Some(late) = probes.iter().filter(since).find(is_late) {
            let (after, saw, log) = (late.sent - self.began, &late.saw, self.agent.log_text());
            panic!(
                "{answer} is due {allowed:?} after the fault, but {after:?} after it a probe got {saw}\n{log}"
            );
        }
    }

    /// Waits until the agent has restarted its watch for this reason `times` times.
    pub(crate) fn restarts(&self, reason: &str, times: f64) {
        let name = format!(r#"nodegate_watch_restarts_total{{resource="nodes",reason="{reason}"}}"#);
        until(reason, || self.agent.metric(&name).filter(|count| *count >= times));
    }

    /// Asserts that a load balancer sees the last of these answers after the repair, and all of them up to then; that
    /// every probe got an answer; that log and metrics report the recovery if the cache was stale; and that the agent
    /// then follows the Node. Prints a line.
    pub(crate) fn recovers(mut self, fault: &str, seen: &[&str]) {
        let first = self.first(seen[seen.len() - 1], self.healed);
        let (took, mut probes) = (first.answered - self.healed, self.prober.probes());
        probes.retain(|probe| probe.answered <= first.answered);
        let since = probes.iter().filter(|probe| probe.sent >= self.healed);
        let allowed = BACK_WITHIN + lag(since) * STEPS;
        assert!(took <= allowed, "back after {took:?}, of {allowed:?}\n{}", self.agent.log_text());
        assert_eq!(trail(&probes), seen, "{}", self.agent.log_text());
        assert_eq!(self.agent.metric("nodegate_cache_stale"), Some(0.0));
        for line in [WARNING, RECOVERED] {
            if seen.contains(&STALE) {
                self.agent.logs_once(line);
            }
            assert!(seen.contains(&STALE) || self.agent.logged(line) == 0, "{}", self.agent.log_text());
        }
        for (answer, change) in [(CORDONED, Sim::cordon as fn(&Sim, &str) -> bool), (FRESH, Sim::uncordon)] {
            let now = Instant::now();
            change(&self.cluster.sim, NODE);
            self.first(answer, now);
        }
        self.prober.wait(1);
        self.prober.stop();
        let after = |probe: &Probe| probe.sent.saturating_duration_since(self.began);
        let failed: Vec<_> =
            self.prober.failed().iter().map(|probe| (probe.result(), after(probe))).collect();
        assert!(failed.is_empty(), "after the fault: {failed:?}\n{}", self.agent.log_text());
        assert_eq!(self.agent.get("/livez").status, 200);
        println!("{fault}: {}; {} probes, 0 failed", seen.join(" → "), self.prober.probes().len());
    }

    /// Returns the first probe sent after `from` that got `answer`.
    fn first(&self, answer: &str, from: Instant) -> Probe {
        let found = until_or(
            || self.prober.probes().into_iter().find(|probe| probe.sent >= from && probe.result() == answer),
            || format!("waited for {answer}; {:?}\n{}", self.prober.counts(), self.agent.log_text()),
        );
        // A probe that was sent before may still be in flight; there is one at a time.
        self.prober.wait(1);
        found
    }
}
