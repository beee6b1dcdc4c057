//! The scripted tour of one minute: actions, expectations, observations.

use crate::cluster::Cluster;
use crate::pods::Pods;
use crate::probe::{Answer, ObservedAgent, Seen, Verdict};
use crate::screen::{Screen, millis};
use crate::traffic::Tally;
use nodegate_testbed::programs;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::{sleep, timeout, timeout_at};

/// The arguments of the tour's agents.
pub(crate) const AGENT_ARGS: &[&str] = &["--stale-after", "5s"];
/// The bound of events without a bound of their own, long enough for the slowest machine.
const GENEROUS: Duration = Duration::from_secs(30);
/// The bound for a stale cache. An agent declares it stale within stale-after + 1 s; one more second is for a
/// loaded machine.
const STALE_BOUND: Duration = Duration::from_secs(5 + 1 + 1);
/// The bound for vanished packets. An agent replaces such a connection within 6 s; one more second is for a
/// loaded machine.
const VANISHED_BOUND: Duration = Duration::from_secs(6 + 1);
/// The bound for known probers and for a drain. An agent listens for 90 s before it knows them.
const PATIENCE: Duration = Duration::from_mins(3);
/// Pauses for the reader.
const BREATH: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_secs(3);
/// The metric that counts the agent's relists of the node.
const RESTARTS: &str = "nodegate_watch_restarts_total{resource=\"nodes\"";

pub(crate) struct Tour<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) agents: &'a [ObservedAgent],
    pub(crate) pods: &'a Pods,
    /// The counters of the requests, if there are balancers.
    pub(crate) tally: Option<&'a Tally>,
    pub(crate) screen: &'a Screen,
    /// The titles of the steps, and true for each that passed.
    pub(crate) steps: Vec<(String, bool)>,
}

/// The answers that the tour waits for.
fn is_ready(answer: &Answer) -> bool {
    answer.is(Verdict::Ready, None)
}

fn is_cordoned(answer: &Answer) -> bool {
    answer.is(Verdict::Draining, Some("Unschedulable"))
}

fn is_not_ready(answer: &Answer) -> bool {
    answer.is(Verdict::NotReady, Some("KubeletNotReady"))
}

fn is_stale(answer: &Answer) -> bool {
    answer.stale && answer.verdict == Verdict::Ready
}

/// An expected answer of some agents: in words, its status, and its bound. `status` is that of a plain `/health`,
/// without the third state.
type Expectation<'a> = (&'a str, u16, Duration, &'a [ObservedAgent], fn(&Answer) -> bool);

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

    /// Shows an observation.
    fn saw(&mut self, good: bool, what: &str) {
        if let Some((_, passed)) = self.steps.last_mut() {
            *passed &= good;
        }
        self.screen.line(format!("  {} {what}", self.screen.mark(good)));
    }

    /// Runs kubectl on the cluster. A failure fails the step.
    async fn kubectl(&mut self, args: &str) {
        if let Err(error) = kubectl(Some(self.cluster), args).await {
            self.saw(false, &error);
        }
    }

    /// Runs kubectl, and waits for an answer of `agents` from then on.
    async fn kubectl_and(&mut self, args: &str, expected: Expectation<'_>) {
        self.does(&format!("kubectl {args}"));
        let since = self.expects(expected);
        self.kubectl(args).await;
        self.sees(expected, since).await;
    }

    /// Shows an expectation. Returns the time from which its bound counts.
    fn expects(&self, (what, status, bound, ..): Expectation<'_>) -> Instant {
        self.screen.line(format!("  expects  {what}, /health {status}, within {} s", bound.as_secs()));
        Instant::now()
    }

    /// Waits until all agents show the expected answer.
    async fn sees(&mut self, (what, status, bound, agents, wanted): Expectation<'_>, since: Instant) {
        let mut longest = Duration::ZERO;
        for agent in agents {
            let mut seen = agent.seen.clone();
            let seen = timeout_at((since + bound).into(), seen.wait_for(|seen| wanted(&seen.answer))).await;
            let Ok(Ok(Seen { at, latency, .. })) = seen.map(|seen| seen.map(|seen| seen.clone())) else {
                let answer = agent.seen.borrow().answer.clone();
                let (node, word, reason) = (agent.node.name, answer.verdict.word(), answer.reason_or_dash());
                return self.saw(false, &format!("not seen in time: {node} says {word} ({reason})"));
            };
            // Since the stored change if that is known, otherwise since the start of the wait.
            let waited = at.saturating_duration_since(since);
            longest = longest.max(latency.filter(|_| at >= since).unwrap_or(waited));
        }
        for agent in agents {
            let got = agent.get("/health").await.map(|reply| reply.status).unwrap_or_default();
            if got != status {
                return self.saw(false, &format!("{}: /health {got}", agent.node.name));
            }
        }
        self.saw(longest <= bound, &format!("{what}, /health {status}, after {}", millis(longest)));
        sleep(BREATH).await;
    }

    async fn cordon(&mut self) {
        let expected = ("worker-1 Draining (Unschedulable)", 503, GENEROUS);
        self.kubectl_and(
            "cordon worker-1",
            (expected.0, expected.1, expected.2, &self.agents[..1], is_cordoned),
        )
        .await;
    }

    async fn uncordon(&mut self) {
        let expected = ("worker-1 Ready", 200, GENEROUS, &self.agents[..1], is_ready as fn(&Answer) -> bool);
        self.kubectl_and("uncordon worker-1", expected).await;
    }

    async fn ready_and_not(&mut self) {
        self.step("All nodes are ready").await;
        self.does("starts the agents");
        let all: Expectation<'_> = ("all three Ready", 200, GENEROUS, self.agents, is_ready);
        let since = self.expects(all);
        self.sees(all, since).await;
        self.step("A node is cordoned").await;
        self.cordon().await;
        self.uncordon().await;
        self.step("A kubelet says that its node is not ready").await;
        let agent = &self.agents[1..2];
        self.does("sets worker-2's condition to Ready=False, KubeletNotReady");
        let out: Expectation<'_> =
            ("worker-2 NotReady (KubeletNotReady)", 503, GENEROUS, agent, is_not_ready);
        let since = self.expects(out);
        self.cluster.sim.set_ready("worker-2", "False", "KubeletNotReady");
        self.sees(out, since).await;
        self.does("sets it to Ready=True");
        let back: Expectation<'_> = ("worker-2 Ready", 200, GENEROUS, agent, is_ready);
        let since = self.expects(back);
        self.cluster.sim.set_ready("worker-2", "True", "KubeletReady");
        self.sees(back, since).await;
    }

    async fn packets_vanish(&mut self) {
        self.step("The packets of open connections vanish").await;
        let before = self.restarts().await;
        self.does(
            "drops every packet of the open connections, as a firewall that forgot them; new ones work",
        );
        self.cluster.sim.half_open();
        let first = &self.agents[..1];
        let expected = (
            "worker-1 Draining all the same",
            503,
            VANISHED_BOUND,
            first,
            is_cordoned as fn(&Answer) -> bool,
        );
        self.kubectl_and("cordon worker-1", expected).await;
        let replaced = self.restarts().await.saturating_sub(before);
        self.saw(replaced > 0, &format!("worker-1's agent replaced its watch {replaced} time(s)"));
        // On the new connection, an event takes milliseconds again.
        self.uncordon().await;
        self.cluster.sim.heal();
    }

    async fn api_server_dies(&mut self) {
        self.step("The API server dies while a node is drained, and comes back").await;
        self.cordon().await;
        self.does("kills the API server");
        let stale: Expectation<'_> =
            ("all three stale, failing open", 200, STALE_BOUND, self.agents, is_stale);
        let since = self.expects(stale);
        self.cluster.sim.kill().await;
        self.sees(stale, since).await;
        // The drained node is back in the pool, and its agent doubts its verdict.
        let status = self.agents[0].status().await;
        let doubt = status.as_ref().and_then(nodegate_agent_client::sentence::doubt).unwrap_or_default();
        self.saw(doubt.contains("Unschedulable"), &format!("worker-1 calls it a guess: {doubt}"));
        self.does(
            "cordons worker-2 while nobody can see it, and restarts the API server without its history",
        );
        let expected: [Expectation<'_>; 3] = [
            ("worker-3 fresh again", 200, GENEROUS, &self.agents[2..], is_ready),
            ("worker-1 Draining again", 503, GENEROUS, &self.agents[..1], is_cordoned),
            ("worker-2 Draining: the cordon was not missed", 503, GENEROUS, &self.agents[1..2], is_cordoned),
        ];
        let since = expected.map(|expected| self.expects(expected));
        self.cluster.sim.cordon("worker-2");
        if let Err(error) = self.cluster.sim.restart(true).await {
            self.saw(false, &error.to_string());
        }
        for (expected, since) in expected.into_iter().zip(since) {
            self.sees(expected, since).await;
        }
        self.uncordon().await;
    }

    /// Checks a drain: acknowledgements, evictions, and no lost request.
    async fn drain(&mut self, tally: &Tally) {
        self.step("A node is drained when every balancer has been told, and no request is lost").await;
        self.does("kubectl uncordon worker-2, whose cordon nobody saw");
        self.kubectl("uncordon worker-2").await;
        self.does("waits until the agents have listened for 90 s: then they know who asks");
        let first = &self.agents[0];
        let known = async {
            while !first.status().await.is_some_and(|status| {
                status.drain.as_ref().is_some_and(|drain| drain.not_known.is_none())
                    && status.told_of().1 == 2
            }) {
                sleep(Duration::from_millis(200)).await;
            }
        };
        let known = timeout(PATIENCE, known).await.is_ok();
        self.saw(known, "worker-1's agent knows both balancers");
        let before = tally.read().lost;
        self.does("kubectl nodegate drain worker-1");
        self.kubectl("nodegate drain worker-1").await;
        let left = self.pods.count("worker-1");
        self.saw(left == 0, &format!("{left} pods take requests on worker-1"));
        self.does("kubectl nodegate uncordon worker-1");
        self.kubectl("nodegate uncordon worker-1").await;
        let lost = tally.read().lost - before;
        self.saw(lost == 0, &format!("{lost} requests lost"));
    }

    /// Returns the number of times that the first agent has restarted its watch of the node.
    async fn restarts(&self) -> u64 {
        let metrics = self.agents[0].get("/metrics").await.map(|reply| reply.body).unwrap_or_default();
        let counts = metrics.lines().filter(|line| line.starts_with(RESTARTS));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Runs the real kubectl, with the plugin beside it. Returns its error.
pub(crate) async fn kubectl(cluster: Option<&Cluster>, args: &str) -> Result<(), String> {
    let (path, agent) = (std::env::var("PATH").unwrap_or_default(), programs::agent());
    let plugins = agent.parent().map(|directory| directory.display().to_string()).unwrap_or_default();
    let mut command = Command::new("kubectl");
    command.args(args.split(' ')).env("PATH", format!("{plugins}:{path}"));
    if let Some(cluster) = cluster {
        // kubectl caches discovery by the server's address, and another cluster may have the same address later.
        let cache = cluster.dir().join("kubectl-cache");
        command.env("KUBECONFIG", cluster.kubeconfig()).env("KUBECACHEDIR", cache);
    }
    let output = timeout(PATIENCE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = output.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?;
    let output = output.map_err(|error| {
        format!("kubectl: {error}; https://kubernetes.io/docs/tasks/tools/ says how to install it")
    })?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
