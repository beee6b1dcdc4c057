//! Simulates the cluster, and begins and ends faults in it. `world.rs` and `episode.rs` call it.

use crate::bounds::{ANSWERED_WITHIN, LATE};
use crate::fault::SimulatedFault::{
    self, ClockStep, CutEvents, CutOff, EtcdStreamLost, Expired, Forbidden, Frozen, GoAway, HalfOpen,
    Hanging, Killed, KubeletDead, LateAnswers, LateEvents, LeaseForbidden, LeaseMemberLost, LostEvents,
    Malformed, MemberLost, NoBookmarks, Refusals, Replay, Reset, Rewound, Rotated, ServerErrors, Slow,
    StreamLost, Throttled, Unauthorized, Unreachable, UnresponsiveConnection, UnresponsiveStream,
    WatchesClosed,
};
use crate::fault::StopsProof;
use crate::network::{Address, Network};
use crate::plan::{Planned, WorldSettings};
use crate::trace::{Trace, note};
use fastrand::Rng;
use futures::FutureExt;
use nodegate_kube_follow::node_facts;
use nodegate_kube_sim::{ApiServer, Backup, Effect, Fault, FaultId, FaultScope, Rule, Sim, now_micro};
use nodegate_readiness::Node;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const NODE: &str = "n1";
const TOKEN: &str = "agent";
const OTHER: &str = "other";
/// The number of writes after which the Service's numbers of endpoints repeat.
const MOST_ENDPOINTS: u64 = 23;
/// The number of writes after a copy of etcd: more than in an episode.
const WRITTEN_SINCE_COPY: u64 = 150;

pub(crate) struct SimulatedCluster {
    pub(crate) sim: Sim,
    servers: Vec<ApiServer>,
    pub(crate) network: Network,
    active: Vec<Active>,
    token: String,
    service: bool,
    pub(crate) endpoints: u64,
    /// The copy of etcd from the beginning of the episode, and the number of endpoints then.
    backup: Option<(Backup, u64)>,
    trace: Trace,
    /// True while the kubelet reaches no API server.
    pub(crate) kubelet_is_cut_off: bool,
    /// True if the wall clock was ever set back: no renewal counts until the clock has passed that time.
    pub(crate) clock_was_set_back: bool,
}

/// An active fault, with its servers and the switch in kube-sim.
struct Active {
    planned: Planned,
    servers: Vec<usize>,
    switch: Option<FaultId>,
}

impl SimulatedCluster {
    pub(crate) fn new(world: &WorldSettings, trace: &Trace) -> Self {
        let sim = Sim::builder().node_bytes(0).servers(world.servers).anonymous(true);
        let sim = sim.nodes([NODE, OTHER]).without_sockets();
        let mut rules = vec![Rule::allow(&["get", "list", "watch"], "", &["nodes"])];
        if world.leases {
            rules.push(Rule::allow(&["get", "list", "watch"], "coordination.k8s.io", &["leases"]));
        }
        if world.service {
            rules.push(Rule::allow(&["list", "watch"], "discovery.k8s.io", &["endpointslices"]));
        }
        sim.service_account(TOKEN, "nodegate", "nodegate", rules);
        let servers = sim.servers();
        let network =
            Network::new(servers.clone(), world.address, world.fixed_credentials, TOKEN, trace.clone());
        Self {
            sim,
            servers,
            network,
            active: Vec::new(),
            token: TOKEN.to_owned(),
            service: world.service,
            endpoints: 0,
            backup: None,
            trace: trace.clone(),
            kubelet_is_cut_off: false,
            clock_was_set_back: false,
        }
    }

    pub(crate) fn node(&self) -> Node {
        let node = self.sim.node(NODE).map(|node| node_facts(node.to_string().as_bytes()));
        node.map_or(Node::Absent, |facts| Node::Present(facts.expect("a Node")))
    }

    // === Other writers ===

    pub(crate) fn noise(&mut self, number: u64) {
        self.write_elsewhere(number);
        if self.service {
            self.endpoints = number % MOST_ENDPOINTS;
            self.sim.set_endpoints("default", "web", NODE, self.endpoints);
        }
    }

    fn write_elsewhere(&self, number: u64) {
        self.sim.edit_node(OTHER, "other", |node| {
            node["metadata"]["annotations"] = json!({"number": number.to_string()});
        });
    }

    /// Returns true if the kubelet renews its Lease: it is alive, reaches the API servers, and has a Node.
    pub(crate) fn renews(&self) -> bool {
        let is_dead = |active: &Active| active.planned.fault == KubeletDead;
        !self.active.iter().any(is_dead) && !self.kubelet_is_cut_off && self.sim.node(NODE).is_some()
    }

    pub(crate) fn renew(&self) {
        if !self.renews() {
            return;
        }
        let time = match fastrand::u32(..500) {
            // Writes of other clients, which the API allows.
            0 => Value::Null,
            1 => json!("2999-01-01T00:00:00.000000Z"),
            _ => json!(now_micro()),
        };
        note!(self.trace, "kubelet: Lease renewed, {time}");
        self.sim.renew_lease(NODE, time);
    }

    // === Faults ===

    /// Copies etcd for a later restore. The many writes after it keep the versions of both histories apart.
    pub(crate) fn back_up(&mut self) {
        self.backup = Some((self.sim.back_up_etcd(), self.endpoints));
        self.write_a_lot();
    }

    fn write_a_lot(&self) {
        (0..WRITTEN_SINCE_COPY).for_each(|number| self.write_elsewhere(number));
    }

    /// Begins a fault. A momentary one is over when this returns.
    pub(crate) fn begin(&mut self, planned: &Planned, random: &mut Rng) {
        let servers = self.targets(planned, random);
        note!(self.trace, "FAULT {} begins, servers {servers:?}, force {:.2}", planned.fault, planned.force);
        let switch = switched(planned, &servers).map(|fault| self.sim.faults().add(fault));
        let active = Active { planned: planned.clone(), switch, servers };
        self.strike(&active);
        if !planned.fault.is_a_moment() {
            self.active.push(active);
        }
    }

    /// Restores etcd. For a small force, the new history overtakes the old one before a client reads.
    fn restore(&mut self, force: f64) {
        let (backup, endpoints) = self.backup.as_ref().expect("a copy");
        self.sim.restore_etcd(backup);
        self.endpoints = *endpoints;
        if force < 0.3 {
            self.write_a_lot();
            self.write_a_lot();
        }
    }

    /// Returns the attempts after which the agent has proof at the latest; `None` if a fault stops all.
    pub(crate) fn attempts_until_proof(&self) -> Option<u32> {
        let delays = self.active.iter().map(|active| active.planned.answers_late());
        if delays.sum::<Duration>() > ANSWERED_WITHIN {
            return None;
        }
        let mut hit: BTreeSet<usize> = BTreeSet::new();
        for active in &self.active {
            match active.planned.fault.stops() {
                StopsProof::Nothing => {}
                StopsProof::ItsServers => hit.extend(&active.servers),
                StopsProof::Everything => return None,
            }
        }
        let some = match self.network.address {
            Address::Direct => return (!hit.contains(&0)).then_some(1),
            Address::RoundRobin => hit.len() < self.servers.len(),
            // Random choices have no bound.
            Address::Random => hit.is_empty(),
        };
        some.then_some(1 + hit.len() as u32)
    }

    fn targets(&self, planned: &Planned, random: &mut Rng) -> Vec<usize> {
        let count = self.servers.len();
        let used = self.network.server_in_use();
        match (planned.all, planned.in_use) {
            (true, _) => (0..count).collect(),
            (false, true) => vec![used],
            (false, false) => vec![(used + random.usize(1..count)) % count],
        }
    }

    fn strike(&mut self, active: &Active) {
        let force = active.planned.force;
        let fault = active.planned.fault;
        match fault {
            _ if active.planned.cuts_off() => {
                self.lose_etcd(active);
                // Events on their way are lost, and a server without newer ones sends them again.
                if fault == Replay {
                    self.network.reset();
                }
            }
            _ if is_of_the_path(fault) => self.reach(active, true),
            HalfOpen => self.network.half_open(),
            Reset => self.network.reset(),
            GoAway => {
                self.network.go_away();
                // A server that is shut down may end its watches.
                if force > 0.5 {
                    self.sim.close_watches(None);
                }
            }
            Unauthorized | Rotated => {
                let new = format!("token-{:016x}", fastrand::u64(..));
                self.sim.rotate_token(&self.token, &new);
                self.token = new;
                if fault == Rotated {
                    self.network.give_token(&self.token);
                } else if force > 0.5 {
                    self.network.reset();
                }
            }
            Forbidden => self.sim.close_watches(Some("nodes")),
            LeaseForbidden => self.sim.close_watches(Some("leases")),
            Expired => self.sim.compact(),
            Throttled | ServerErrors | Hanging if force < 0.7 => {
                self.network.reset();
            }
            WatchesClosed => self.sim.close_watches(None),
            Rewound => self.restore(force),
            ClockStep => self.clock_was_set_back |= !step_the_clock(force),
            StreamLost => self.network.lose_streams(active.planned.loses()),
            _ => {}
        }
    }

    pub(crate) fn end(&mut self, planned: &Planned) {
        let Some(index) = self.active.iter().position(|active| active.planned.fault == planned.fault) else {
            return;
        };
        let active = self.active.remove(index);
        note!(self.trace, "FAULT {} ends", planned.fault);
        active.switch.map(|switch| self.sim.faults().remove(switch));
        match planned.fault {
            fault if is_of_the_path(fault) => {
                if planned.fault == Killed && planned.force < 0.4 {
                    self.sim.compact();
                }
                self.reach(&active, false);
            }
            Rewound => self.start_servers_again(),
            Unauthorized => self.network.give_token(&self.token),
            _ => {
                active.servers.iter().for_each(|server| self.servers[*server].mend_etcd());
                // Other active faults may cut the servers off as well.
                self.active.iter().for_each(|other| self.lose_etcd(other));
            }
        }
    }

    /// Restarts the API servers, as an operator does after a restore of etcd.
    fn start_servers_again(&self) {
        self.network.reset();
        for server in &self.servers {
            server.restart().now_or_never().expect("no socket to wait for").expect("no socket to bind");
        }
    }

    fn lose_etcd(&self, active: &Active) {
        for server in active.servers.iter().map(|server| &self.servers[*server]) {
            match active.planned.fault {
                CutOff | Replay => server.cut_off_from_etcd(&[]),
                MemberLost => server.cut_off_from_etcd(&["nodes"]),
                LeaseMemberLost => server.cut_off_from_etcd(&["leases"]),
                EtcdStreamLost => server.lose_streams_of_etcd(&["nodes"]),
                _ => {}
            }
        }
    }

    fn reach(&self, active: &Active, on: bool) {
        let planned = &active.planned;
        let late = |delay: Duration| if on { delay } else { Duration::ZERO };
        for server in &active.servers {
            self.network.change(*server, |faults| match planned.fault {
                Killed => faults.killed = on,
                Frozen => faults.frozen = on,
                Unreachable => faults.unreachable = on,
                LateAnswers => faults.answers_late = late(planned.answers_late()),
                NoBookmarks => faults.no_bookmarks = on,
                _ => faults.late = late(LATE.mul_f64(0.1 + 0.9 * planned.force)),
            });
        }
    }
}

/// Returns true for a fault of a server's process or of the path to it.
fn is_of_the_path(fault: SimulatedFault) -> bool {
    matches!(fault, Killed | Frozen | Unreachable | LateEvents | LateAnswers | NoBookmarks)
}

/// Returns the fault of kube-sim for a fault, if it has one.
fn switched(planned: &Planned, servers: &[usize]) -> Option<Fault> {
    let all = || FaultScope { servers: servers.to_vec(), ..FaultScope::all() };
    let nodes = || all().resources(&["nodes"]);
    let force = planned.force;
    let some = if force < 0.5 { 1.0 } else { 0.6 };
    let retry_after = if force < 0.3 { 0 } else { (force * 40.0) as u32 };
    let one = match planned.fault {
        UnresponsiveStream if force > 0.85 => {
            Effect::LoseEvents { bookmarks: false }.on(all().resources(&["endpointslices"]))
        }
        UnresponsiveStream => Effect::LoseEvents { bookmarks: false }.on(nodes()),
        UnresponsiveConnection => Effect::LoseEvents { bookmarks: false }.on(all()),
        LostEvents => Effect::LoseEvents { bookmarks: true }.on(nodes()),
        Forbidden => Effect::Forbidden.on(nodes()),
        LeaseForbidden => Effect::Forbidden.on(all().resources(&["leases"])),
        Throttled => Fault { probability: some, ..Effect::Status { code: 429, retry_after }.on(all()) },
        ServerErrors => {
            let code = [500, 502, 503, 504][(force * 3.99) as usize];
            Fault { probability: some, ..Effect::Status { code, retry_after: 0 }.on(all()) }
        }
        Malformed if force < 0.5 => Effect::Malformed.on(all()),
        Malformed => Effect::Malformed.on(nodes().verbs(&["watch"])),
        CutEvents if force < 0.5 => Effect::CutEvent.on(all()),
        CutEvents => Effect::CutEvent.on(nodes().verbs(&["watch"])),
        Hanging => Fault { probability: some, ..Effect::Hang.on(all()) },
        Slow => Effect::Latency { ms: planned.answers_late().as_millis() as u64 }.on(all()),
        WatchesClosed => Effect::CloseWatch.on(all()),
        Refusals => refusals(force, nodes()),
        _ => return None,
    };
    Some(one)
}

/// Sets the clock forward or back, by seconds or by an hour. Returns true for forward.
fn step_the_clock(force: f64) -> bool {
    let wall = nodegate_clock::wall();
    let step = if force < 0.5 { Duration::from_hours(1) } else { Duration::from_secs_f64(force * 30.0) };
    let forward = ((force * 1000.0) as u64).is_multiple_of(2);
    nodegate_clock::set_wall(if forward { wall + step } else { wall - step });
    forward
}

/// Returns the refusals of consistency checks for this force: of a few checks, or of all.
fn refusals(force: f64, scope: FaultScope) -> Fault {
    let step = (force * 48.0) as u32;
    let (times, retry_after) = ([1, 2, 3, 1000][(step / 2 % 4) as usize], step / 8);
    // An API server sends no 429 without `Retry-After`.
    let code = if step.is_multiple_of(2) && retry_after > 0 { 429 } else { 503 };
    Fault { times, ..Effect::Status { code, retry_after }.on(scope.verbs(&["get"])) }
}
