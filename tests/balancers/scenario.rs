//! A balancer in front of three nodes under traffic. It plays events and observes their effect.

use crate::backend::Backend;
use crate::balancer::{Balancer, Row};
use crate::event::Event;
use crate::nodes::{NODES, Nodes};
use crate::traffic::{Held, traffic};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::{until, until_or};
use std::time::{Duration, Instant};

/// After this number of requests in a row to other nodes, a node counts as out of the pool. By chance, one
/// node of three would be missed so often once in a billion times.
const ELSEWHERE: usize = 50;
/// The time without a request after which a node counts as out of the pool, if no node serves.
const QUIET: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) failures: Vec<String>,
    /// From the event to the last new connection on the node; `None` if it stayed in the pool.
    pub(crate) left_after: Option<Duration>,
    /// True if it got new connections again before the event was over.
    pub(crate) back: bool,
    /// True if the open connection on the node went on.
    pub(crate) kept: bool,
    /// The balancer's status of the node, if it differs from the one before.
    pub(crate) says: Option<String>,
}

pub(crate) struct Scenario {
    pub(crate) row: Row,
    traffic: Prober,
    balancer: Balancer,
    pub(crate) nodes: Nodes,
    /// The node that was drained before an outage.
    pub(crate) drained: Option<usize>,
    /// The balancer's status of a node that serves.
    usually: Option<String>,
    /// The balancer's status when the event began.
    before: Option<String>,
    /// The observations: the last connection before the node had none, and another status of the balancer.
    pub(crate) left: Option<Instant>,
    says: Option<String>,
}

impl Scenario {
    pub(crate) fn set(row: Row) -> Self {
        let nodes = Nodes::start(row.agent_args);
        let balancer = (row.start)(&row, &nodes);
        let traffic = nodes.lan.client.act(|| traffic(row.service));
        let (drained, usually, before, left, says) = Default::default();
        let mut scenario = Self { row, traffic, balancer, nodes, drained, usually, before, left, says };
        let is_served = |probe: &Probe| matches!(probe.saw, Saw::Answer(..));
        until_or(
            || scenario.traffic.probes().iter().any(is_served).then_some(()),
            || format!("{}: no request was served: {:?}", row.title(), scenario.traffic.counts()),
        );
        scenario.wait_for_traffic();
        scenario.usually = (scenario.balancer.says)(&scenario.nodes.lan, scenario.node());
        scenario
    }

    /// Plays an event under traffic, and undoes it. It starts later by `later`, for another phase of the probes.
    pub(crate) fn play(&mut self, event: Event, later: Duration) -> Outcome {
        self.wait_for_traffic();
        let node = event.prepare(self);
        let asked_of = self.drained.unwrap_or(node);
        let held = self.nodes.lan.client.act(|| Held::on(NODES[node], self.row.service));
        self.before = (self.balancer.says)(&self.nodes.lan, asked_of);
        (self.says, self.left) = (None, None);
        std::thread::sleep(later);
        let started = Instant::now();
        event.happen(node, self);
        let back = self.left.is_some_and(|left| self.nodes.backends[node].since(left) > 0);
        let left_after = self.left.map(|left| left.saturating_duration_since(started));
        let kept = held.works();
        event.undo(node, self);
        self.wait_for_traffic();
        let probes = self.traffic.answered_since(started);
        let failed = probes.iter().filter(|probe| matches!(probe.saw, Saw::Failed(_)));
        let (requests, failures) = (probes.len() as u64, failed.map(Probe::result).collect());
        Outcome { requests, failures, left_after, back, kept, says: self.says.clone() }
    }

    /// Returns the node of the event: the one with all traffic, if there is one.
    pub(crate) fn node(&self) -> usize {
        self.holder().unwrap_or(0)
    }

    pub(crate) fn holder(&self) -> Option<usize> {
        (self.balancer.holder)(&self.nodes.lan)
    }

    /// Waits until every node (or the holder) gets traffic, and the balancer's status is as usual.
    fn wait_for_traffic(&self) {
        let all = [0, 1, 2];
        let holder = self.holder().map(|node| [node]);
        let nodes = holder.as_ref().map_or(all.as_slice(), |holder| holder.as_slice());
        let is_as_usual = |node: &usize| (self.balancer.says)(&self.nodes.lan, *node) == self.usually;
        if self.usually.is_some() {
            until("the balancer to say as usual", || nodes.iter().all(is_as_usual).then_some(()));
        }
        self.nodes.wait_for_traffic_on(nodes);
    }

    /// Returns the last connection of a node that gets none any more.
    fn last_before_none(&self, node: usize) -> Option<Instant> {
        let last = self.nodes.backends[node].last()?;
        let others = self.nodes.backends.iter().map(|backend| backend.since(last)).sum::<usize>();
        let is_quiet = |backend: &Backend| backend.last().is_none_or(|last| last.elapsed() > QUIET);
        let nowhere = self.nodes.backends.iter().all(is_quiet);
        (others > ELSEWHERE || nowhere).then_some(last)
    }

    fn look(&mut self, node: usize) {
        self.left = self.left.or_else(|| self.last_before_none(node));
        let says = (self.balancer.says)(&self.nodes.lan, self.drained.unwrap_or(node));
        if says != self.before && says.is_some() {
            self.says = says;
        }
    }

    pub(crate) fn watch(&mut self, node: usize, time: Duration) {
        self.watch_while(node, time, |_| true);
    }

    /// Watches a node until it gets no new connections, at most for this time.
    pub(crate) fn watch_until_left(&mut self, node: usize, time: Duration) {
        self.left = None;
        self.watch_while(node, time, |scenario| scenario.left.is_none());
    }

    fn watch_while(&mut self, node: usize, time: Duration, goes_on: fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed() < time && goes_on(self) {
            self.look(node);
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn drain(&self, node: usize) {
        let args = ["drain", NODES[node], "--ignore-daemonsets"];
        self.nodes.lan.router.act(|| self.nodes.cluster.kubectl(&args));
    }
}
