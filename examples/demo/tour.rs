//! The scripted tour of some minutes: actions, expectations, observations.

use crate::balancer::Tally;
use crate::pods::Pods;
use crate::probe::{Answer, ObservedAgent};
use crate::screen::{Screen, millis};
use nodegate_agent_api::DrainStatus;
use nodegate_readiness::Verdict;
use nodegate_testbed::{Scenario, programs};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::{sleep, timeout, timeout_at};

/// The arguments of the tour's agents.
pub(crate) const AGENT_ARGS: &[&str] = &["--stale-after", "5s"];
/// The bound of events without a bound of their own, long enough for the slowest machine.
const GENEROUS: Duration = Duration::from_secs(30);
/// An agent declares its cache stale within stale-after + 1 s, and replaces a connection whose packets vanish within
/// 6 s. One more second is for a loaded machine.
const STALE_BOUND: Duration = Duration::from_secs(5 + 1 + 1);
const VANISHED_BOUND: Duration = Duration::from_secs(6 + 1);
/// The bound for known probers and for a drain. An agent listens for 90 s before it knows them.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Pauses for the reader.
const BREATH: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_secs(3);

type Wanted = fn(&Answer) -> bool;

const READY: Wanted = |answer| answer.is(Verdict::Ready, None);
const CORDONED: Wanted = |answer| answer.is(Verdict::Draining, Some("Unschedulable"));
const NOT_READY: Wanted = |answer| answer.is(Verdict::NotReady, Some("KubeletNotReady"));
const STALE: Wanted = |answer| answer.stale && answer.verdict == Some(Verdict::Ready);

/// An expected answer of some agents: in words, its bound, the agents, and the answer.
type Expectation<'a> = (&'a str, Duration, &'a [ObservedAgent], Wanted);

pub(crate) struct Tour<'a> {
    pub(crate) cluster: &'a Scenario,
    pub(crate) agents: &'a [ObservedAgent],
    pub(crate) pods: &'a Pods,
    /// The counters of the requests, if there are balancers.
    pub(crate) tally: Option<&'a Tally>,
    pub(crate) screen: &'a Screen,
    /// The titles of the steps, and true for each that passed.
    pub(crate) steps: Vec<(String, bool)>,
}

impl Tour<'_> {
    /// Runs all steps. Returns true if each of them passed.
    pub(crate) async fn play(mut self) -> bool {
        let began = Instant::now();
        self.ready_and_not().await;
        // The vanished packets come before the outage. Shortly after an outage, an agent waits longer between
        // two attempts than the bound for vanished packets allows.
        self.packets_vanish().await;
        self.api_server_dies().await;
        if let Some(tally) = self.tally {
            self.drain(tally).await;
        }
        self.screen.line("");
        for (title, passed) in &self.steps {
            self.screen.line(format!("{} {title}", self.screen.mark(*passed)));
        }
        let (good, all) = (self.steps.iter().filter(|(_, passed)| *passed).count(), self.steps.len());
        let time = began.elapsed().as_secs();
        self.screen.line(format!("{good} of {all} steps showed what they should, in {time} s"));
        good == all
    }

    async fn ready_and_not(&mut self) {
        let (sim, second) = (&self.cluster.sim, &self.agents[1..2]);
        self.step("All nodes are ready").await;
        let all = ("all three Ready", GENEROUS, self.agents, READY);
        self.act("starts the agents", &[all], async { Ok(()) }).await;
        self.step("A node is cordoned").await;
        self.cordon("worker-1 Draining (Unschedulable)", GENEROUS).await;
        self.uncordon().await;
        self.step("A kubelet says that its node is not ready").await;
        for (status, reason, what, wanted) in [
            ("False", "KubeletNotReady", "worker-2 NotReady (KubeletNotReady)", NOT_READY),
            ("True", "KubeletReady", "worker-2 Ready", READY),
        ] {
            let sets = format!("sets worker-2's condition to Ready={status}, {reason}");
            let set =
                async { sim.set_ready("worker-2", status, reason).then_some(()).ok_or("no worker-2".into()) };
            self.act(&sets, &[(what, GENEROUS, second, wanted)], set).await;
        }
    }

    async fn packets_vanish(&mut self) {
        self.step("The packets of open connections vanish").await;
        self.does(
            "drops every packet of the open connections, as a firewall that forgot them; new ones work",
        );
        self.cluster.sim.half_open();
        self.cordon("worker-1 Draining all the same", VANISHED_BOUND).await;
        // On the new connection, an event takes milliseconds again.
        self.uncordon().await;
        self.cluster.sim.heal();
    }

    async fn api_server_dies(&mut self) {
        self.step("The API server dies while a node is drained, and comes back").await;
        self.cordon("worker-1 Draining (Unschedulable)", GENEROUS).await;
        let (sim, agents) = (&self.cluster.sim, self.agents);
        let stale = ("all three stale, failing open", STALE_BOUND, agents, STALE);
        let kill = async {
            sim.kill().await;
            Ok(())
        };
        self.act("kills the API server", &[stale], kill).await;
        // The drained node is back in the pool, and its agent doubts its verdict.
        let status = agents[0].status().await;
        let caveat = status.as_ref().and_then(nodegate_agent_client::sentence::caveat).unwrap_or_default();
        self.saw(caveat.contains("Unschedulable"), &format!("worker-1 calls it a guess: {caveat}"));
        let expected = [
            ("worker-3 fresh again", GENEROUS, &agents[2..], READY),
            ("worker-1 Draining again", GENEROUS, &agents[..1], CORDONED),
            ("worker-2 Draining: the cordon was not missed", GENEROUS, &agents[1..2], CORDONED),
        ];
        let what =
            "cordons worker-2 while no agent can see it, and restarts the API server without its history";
        self.act(what, &expected, async {
            sim.cordon("worker-2");
            sim.restart(true).await.map_err(|error| error.to_string())
        })
        .await;
        self.uncordon().await;
    }

    /// Checks a drain: acknowledgements, evictions, and no lost request.
    async fn drain(&mut self, tally: &Tally) {
        self.step("A node is drained when every balancer has acknowledged, and no request is lost").await;
        self.kubectl("uncordon worker-2", &[]).await;
        self.does("waits until the agents have listened for 90 s: then they know their probers");
        let knows = |drain: DrainStatus| drain.not_known.is_none() && drain.probers == 2;
        let known = async || self.agents[0].status().await.is_some_and(|status| knows(status.drain));
        let known = within(TIMEOUT, known).await;
        self.saw(known, "worker-1's agent knows both balancers");
        let before = tally.read().lost;
        self.kubectl("nodegate drain worker-1", &[]).await;
        let evicted = within(GENEROUS, async || self.pods.count("worker-1") == 0).await;
        self.saw(evicted, "no pod takes requests on worker-1");
        self.kubectl("nodegate uncordon worker-1", &[]).await;
        let lost = tally.read().lost - before;
        self.saw(lost == 0, &format!("{lost} requests lost"));
    }

    async fn step(&mut self, title: &str) {
        if !self.steps.is_empty() {
            sleep(PAUSE).await;
        }
        let of = if self.tally.is_some() { 6 } else { 5 };
        let title = format!("{}/{of} {title}", self.steps.len() + 1);
        self.screen.line(format!("\n{}", self.screen.bold(&title)));
        self.steps.push((title, true));
    }

    fn does(&self, what: &str) {
        self.screen.line(format!("  does     {what}"));
    }

    /// Shows an observation. A bad one fails the step.
    fn saw(&mut self, good: bool, what: &str) {
        if let Some((_, passed)) = self.steps.last_mut() {
            *passed &= good;
        }
        self.screen.line(format!("  {} {what}", self.screen.mark(good)));
    }

    async fn cordon(&mut self, what: &str, bound: Duration) {
        let expected = (what, bound, &self.agents[..1], CORDONED);
        self.kubectl("cordon worker-1", &[expected]).await;
    }

    async fn uncordon(&mut self) {
        let ready = ("worker-1 Ready", GENEROUS, &self.agents[..1], READY);
        self.kubectl("uncordon worker-1", &[ready]).await;
    }

    async fn kubectl(&mut self, args: &str, expected: &[Expectation<'_>]) {
        self.act(&format!("kubectl {args}"), expected, kubectl(self.cluster, args)).await;
    }

    /// Announces an action and what it must lead to, acts, and looks. A failed action fails the step.
    async fn act(
        &mut self,
        what: &str,
        expected: &[Expectation<'_>],
        act: impl Future<Output = Result<(), String>>,
    ) {
        self.does(what);
        for (what, bound, ..) in expected {
            self.screen.line(format!("  expects  {what}, within {} s", bound.as_secs()));
        }
        let since = Instant::now();
        if let Err(error) = act.await {
            self.saw(false, &error);
        }
        for expected in expected {
            let seen = sees(*expected, since).await;
            self.saw(seen.is_ok(), &seen.unwrap_or_else(|wrong| wrong));
            sleep(BREATH).await;
        }
    }
}

/// Waits until this is so. Returns false if it is not within the limit.
async fn within(limit: Duration, is_so: impl AsyncFn() -> bool) -> bool {
    let waiting = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(limit, waiting).await.is_ok()
}

/// Waits until all agents show the expected answer. Returns what was seen, or what is wrong.
async fn sees((what, bound, agents, wanted): Expectation<'_>, since: Instant) -> Result<String, String> {
    let mut longest = Duration::ZERO;
    for agent in agents {
        let (mut seen, name) = (agent.seen.clone(), agent.node.name);
        let seen = timeout_at((since + bound).into(), seen.wait_for(|seen| wanted(&seen.answer))).await;
        let Ok(Ok(seen)) = seen.map(|seen| seen.map(|seen| seen.clone())) else {
            let answer = agent.seen.borrow().answer.clone();
            let (word, reason) = (answer.word(), answer.reason_or_dash());
            return Err(format!("not seen in time: {name} says {word} ({reason})"));
        };
        // Since the stored change if that is known, otherwise since the start of the wait.
        let waited = seen.at.saturating_duration_since(since);
        longest = longest.max(seen.latency.filter(|_| seen.at >= since).unwrap_or(waited));
    }
    let text = format!("{what}, after {}", millis(longest));
    if longest <= bound { Ok(text) } else { Err(text) }
}

/// Runs the real kubectl, with the plugin beside it. Returns its error.
async fn kubectl(cluster: &Scenario, args: &str) -> Result<(), String> {
    let mut command = Command::new("kubectl");
    let (path, plugins) = (std::env::var("PATH").unwrap_or_default(), programs::agent().with_file_name(""));
    command.args(args.split(' ')).env("PATH", format!("{}:{path}", plugins.display()));
    // kubectl caches discovery by the server's address, and another cluster may have the same address later.
    let cache = cluster.file("kubectl-cache");
    command.env("KUBECONFIG", cluster.admin().kubeconfig()).env("KUBECACHEDIR", cache);
    let output = timeout(TIMEOUT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = output.map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
