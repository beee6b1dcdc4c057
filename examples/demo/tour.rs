//! The scripted tour of one minute.

use crate::answer::{Answer, Verdict};
use crate::cluster::Cluster;
use crate::fleet::ObservedAgent;
use crate::kubectl::Kubectl;
use crate::pods::Pods;
use crate::probe;
use crate::screen::Screen;
use crate::step::{GENEROUS, Step};
use crate::traffic::Tally;
use nodegate_readiness::status::Status;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The arguments of the tour's agents.
pub(crate) const AGENT_ARGS: &[&str] = &["--stale-after", "5s"];
/// The bound for a stale cache. An agent declares it stale within stale-after + 1 s; one more second is for a
/// loaded machine.
const STALE_BOUND: Duration = Duration::from_secs(5 + 1 + 1);
/// The bound for vanished packets. An agent replaces such a connection within 6 s; one more second is for a
/// loaded machine.
const VANISHED_BOUND: Duration = Duration::from_secs(6 + 1);
/// The bound for known probers. An agent listens for 90 s before it knows them; the tour's other steps take
/// one minute of these.
const LISTENED_WITHIN: Duration = Duration::from_mins(3);
/// The metric that counts the agent's relists of the node.
const RESTARTS: &str = "nodegate_watch_restarts_total{resource=\"nodes\"";

pub(crate) struct Tour<'a> {
    pub(crate) kubectl: Kubectl,
    pub(crate) cluster: &'a Cluster,
    pub(crate) agents: &'a [ObservedAgent],
    pub(crate) pods: &'a Pods,
    /// The counters of the requests, if there are balancers.
    pub(crate) tally: Option<&'a Tally>,
    pub(crate) screen: &'a Screen,
}

impl<'a> Tour<'a> {
    /// Runs all steps. Returns true if each of them passed.
    pub(crate) async fn play(&self) -> bool {
        let began = Instant::now();
        // The vanished packets come before the outage. Shortly after an outage, an agent waits longer between
        // two attempts than the bound for vanished packets allows.
        let mut steps = vec![
            self.all_ready().await,
            self.cordon().await,
            self.not_ready().await,
            self.packets_vanish().await,
            self.api_server_dies().await,
        ];
        if let Some(tally) = self.tally {
            steps.push(self.drain(tally).await);
        }
        self.screen.line("");
        for (title, passed) in &steps {
            self.screen.line(format!("{} {title}", self.screen.mark(*passed)));
        }
        let good = steps.iter().filter(|(_, passed)| *passed).count();
        let time = began.elapsed().as_secs();
        self.screen.line(format!("{good} of {} steps showed what they should, in {time} s", steps.len()));
        good == steps.len()
    }

    fn step(&self, number: usize, title: &str) -> Step<'a> {
        let of = if self.tally.is_some() { 6 } else { 5 };
        Step::begin(self.screen, &format!("{number}/{of} {title}"))
    }

    async fn all_ready(&self) -> (String, bool) {
        let mut step = self.step(1, "All nodes are ready");
        step.does("starts the agents");
        let expected = step.expects("all three Ready", 200, GENEROUS);
        step.sees(expected, &self.all(), is_ready).await;
        step.end().await
    }

    async fn cordon(&self) -> (String, bool) {
        let mut step = self.step(2, "A node is cordoned");
        step.does("kubectl cordon worker-1");
        let expected = step.expects("worker-1 Draining (Unschedulable)", 503, GENEROUS);
        step.done(self.kubectl.run(self.cluster, &["cordon", "worker-1"]).await);
        step.sees(expected, &self.agents_of("worker-1"), is_cordoned).await;
        self.uncordon(&mut step).await;
        step.end().await
    }

    async fn uncordon(&self, step: &mut Step<'_>) {
        step.does("kubectl uncordon worker-1");
        let expected = step.expects("worker-1 Ready", 200, GENEROUS);
        step.done(self.kubectl.run(self.cluster, &["uncordon", "worker-1"]).await);
        step.sees(expected, &self.agents_of("worker-1"), is_ready).await;
    }

    async fn not_ready(&self) -> (String, bool) {
        let mut step = self.step(3, "A kubelet says that its node is not ready");
        step.does("sets worker-2's condition to Ready=False, KubeletNotReady");
        let expected = step.expects("worker-2 NotReady (KubeletNotReady)", 503, GENEROUS);
        self.cluster.sim.set_ready("worker-2", "False", "KubeletNotReady");
        let not_ready = |answer: &Answer| answer.is(Verdict::NotReady, Some("KubeletNotReady"));
        step.sees(expected, &self.agents_of("worker-2"), not_ready).await;
        step.does("sets it to Ready=True");
        let expected = step.expects("worker-2 Ready", 200, GENEROUS);
        self.cluster.sim.set_ready("worker-2", "True", "KubeletReady");
        step.sees(expected, &self.agents_of("worker-2"), is_ready).await;
        step.end().await
    }

    async fn packets_vanish(&self) -> (String, bool) {
        let mut step = self.step(4, "The packets of open connections vanish");
        let before = self.restarts().await;
        step.does(
            "drops every packet of the open connections, as a firewall that forgot them; new ones work",
        );
        step.does("kubectl cordon worker-1");
        let expected = step.expects("worker-1 Draining all the same", 503, VANISHED_BOUND);
        self.cluster.sim.half_open();
        step.done(self.kubectl.run(self.cluster, &["cordon", "worker-1"]).await);
        step.sees(expected, &self.agents_of("worker-1"), is_cordoned).await;
        let replaced = self.restarts().await.saturating_sub(before);
        step.saw(replaced > 0, &format!("worker-1's agent replaced its watch {replaced} time(s)"));
        // On the new connection, an event takes milliseconds again.
        self.uncordon(&mut step).await;
        self.cluster.sim.heal();
        step.end().await
    }

    async fn api_server_dies(&self) -> (String, bool) {
        let mut step = self.step(5, "The API server dies while a node is drained, and comes back");
        step.does("kubectl cordon worker-1");
        let expected = step.expects("worker-1 Draining (Unschedulable)", 503, GENEROUS);
        step.done(self.kubectl.run(self.cluster, &["cordon", "worker-1"]).await);
        step.sees(expected, &self.agents_of("worker-1"), is_cordoned).await;
        step.does("kills the API server");
        let expected = step.expects("all three stale, failing open", 200, STALE_BOUND);
        self.cluster.sim.kill().await;
        let stale = |answer: &Answer| answer.stale && answer.verdict == Verdict::Ready;
        step.sees(expected, &self.all(), stale).await;
        self.guesses(&mut step).await;
        step.does(
            "cordons worker-2 while nobody can see it, and restarts the API server without its history",
        );
        let fresh = step.expects("worker-3 fresh again", 200, GENEROUS);
        let cordoned = step.expects("worker-1 Draining again", 503, GENEROUS);
        let unseen = step.expects("worker-2 Draining: the cordon was not missed", 503, GENEROUS);
        self.cluster.sim.cordon("worker-2");
        if let Err(error) = self.cluster.sim.restart(true).await {
            step.saw(false, &error.to_string());
        }
        step.sees(fresh, &self.agents_of("worker-3"), is_ready).await;
        step.sees(cordoned, &self.agents_of("worker-1"), is_cordoned).await;
        step.sees(unseen, &self.agents_of("worker-2"), is_cordoned).await;
        self.uncordon(&mut step).await;
        step.end().await
    }

    /// Checks a drain: acknowledgements, evictions, and no lost request.
    async fn drain(&self, tally: &Tally) -> (String, bool) {
        let mut step =
            self.step(6, "A node is drained when every balancer has been told, and no request is lost");
        step.does("kubectl uncordon worker-2, whose cordon nobody saw");
        step.done(self.kubectl.run(self.cluster, &["uncordon", "worker-2"]).await);
        step.does("waits until the agents have listened for 90 s: then they know who asks");
        let known = timeout(LISTENED_WITHIN, self.known("worker-1")).await.is_ok();
        step.saw(known, "worker-1's agent knows both balancers");
        let before = tally.read().lost;
        step.does("kubectl nodegate drain worker-1");
        step.done(self.kubectl.run(self.cluster, &["nodegate", "drain", "worker-1"]).await);
        let left = self.pods.count("worker-1");
        step.saw(left == 0, &format!("{left} pods take requests on worker-1"));
        step.does("kubectl nodegate uncordon worker-1");
        step.done(self.kubectl.run(self.cluster, &["nodegate", "uncordon", "worker-1"]).await);
        let lost = tally.read().lost - before;
        step.saw(lost == 0, &format!("{lost} requests lost"));
        step.end().await
    }

    /// Waits until the agent knows all probers, so that a drain can know whether all have acknowledged it.
    async fn known(&self, name: &str) {
        while !self.status(name).await.is_some_and(|status| {
            status.drain.as_ref().is_some_and(|drain| drain.not_known.is_none()) && status.told_of().1 == 2
        }) {
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn status(&self, name: &str) -> Option<Status> {
        let agent = self.agents.iter().find(|agent| agent.node.name == name)?;
        let (_, body) = probe::get(agent.node, "/status.json").await.ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// Checks that the drained node is back in the pool, and that its agent reports a doubt about its
    /// verdict.
    async fn guesses(&self, step: &mut Step<'_>) {
        let doubt = self
            .status("worker-1")
            .await
            .as_ref()
            .and_then(nodegate_agent_client::sentence::doubt)
            .unwrap_or_default();
        step.saw(doubt.contains("Unschedulable"), &format!("worker-1 calls it a guess: {doubt}"));
    }

    fn all(&self) -> Vec<&'a ObservedAgent> {
        self.agents.iter().collect()
    }

    fn agents_of(&self, names: &str) -> Vec<&'a ObservedAgent> {
        let named = |agent: &&ObservedAgent| names.split(' ').any(|name| name == agent.node.name);
        self.agents.iter().filter(named).collect()
    }

    /// Returns the number of times that the first agent has restarted its watch of the node.
    async fn restarts(&self) -> u64 {
        let Some(agent) = self.agents.first() else { return 0 };
        let Ok((_, metrics)) = probe::get(agent.node, "/metrics").await else { return 0 };
        let metrics = String::from_utf8_lossy(&metrics);
        let counts = metrics.lines().filter(|line| line.starts_with(RESTARTS));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

fn is_ready(answer: &Answer) -> bool {
    answer.is(Verdict::Ready, None)
}

fn is_cordoned(answer: &Answer) -> bool {
    answer.is(Verdict::Draining, Some("Unschedulable"))
}
