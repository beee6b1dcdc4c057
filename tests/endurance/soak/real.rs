//! The oracle on a real control plane: five minutes of random events of a Node and outages of real programs,
//! with each answer judged. Only a real API server shows how long it takes to notice a fault and to recover,
//! and what it answers meanwhile.

use super::balancers::{Balancers, Doors};
use super::machine::Machine;
use super::oracle::{Oracle, Reach, allowance};
use crate::setting;
use nodegate_simulation::events::{Event, Events, Noise};
use nodegate_simulation::truth::{Ready, Truth};
use nodegate_testbed::network::ports;
use nodegate_testbed::real_cluster::{
    CutCable, MERGE, Member, PATIENCE, RealCluster, ServerRoute, wait_watches,
};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::Watching as _;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STALE_AFTER: Duration = Duration::from_secs(15);
/// From the API server's first consistent answer to the agent's, as in the simulated run.
const BACK_WITHIN: Duration = Duration::from_secs(16);
const BETWEEN_OUTAGES: Duration = Duration::from_secs(12);
const SECOND: Duration = Duration::from_secs(1);
const NODE: &str = "judged-node";
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// An outage of the API server that the agent uses.
#[derive(Clone, Copy, Debug)]
enum Outage {
    CutOffFromEtcd,
    PacketsVanish,
    Frozen,
    Killed,
    EtcdFrozen,
}

impl Outage {
    const ALL: [Self; 5] =
        [Self::CutOffFromEtcd, Self::PacketsVanish, Self::Frozen, Self::Killed, Self::EtcdFrozen];

    fn begin(self, cluster: &RealCluster) -> Option<CutCable<'_>> {
        match self {
            Self::CutOffFromEtcd => return Some(cluster.cut("etcd-b")),
            Self::PacketsVanish => return Some(cluster.cut("agent")),
            Self::Frozen => cluster.node_script(&["freeze", "api-b"]),
            Self::Killed => cluster.node_script(&["stop", "api-b"]),
            Self::EtcdFrozen => cluster.node_script(&["freeze", "etcd"]),
        }
        None
    }

    fn heal(self, cluster: &RealCluster, cut: Option<CutCable<'_>>) {
        drop(cut);
        match self {
            Self::Frozen => cluster.node_script(&["thaw", "api-b"]),
            Self::Killed => cluster.node_script(&["start", "api-b"]),
            Self::EtcdFrozen => cluster.node_script(&["thaw", "etcd"]),
            Self::CutOffFromEtcd | Self::PacketsVanish => {}
        }
    }
}

struct Run<'a> {
    cluster: &'a RealCluster,
    member: Member,
    events: Events,
    truth: Truth,
    other_taint: bool,
    other_label: bool,
    oracle: Arc<Mutex<Oracle>>,
    machine: Arc<Machine>,
}

impl Run<'_> {
    /// Plays the next event. Without an outage it counts as done when the agent's API server knows of it.
    fn event(&mut self, marker: bool, fair: bool) {
        let event = if marker { self.events.marker(&self.truth) } else { self.events.next(&self.truth) };
        let was_deleting = self.truth.deleting;
        if matches!(event, Event::Deleting) {
            // A finalizer keeps the object; it changes no answer.
            self.member.patch(MERGE, &json!({"metadata": {"finalizers": ["example.com/judged"]}}));
        }
        self.truth = event.after(&self.truth);
        self.oracle.lock().unwrap().changing(&self.truth, Instant::now());
        self.perform(&event, was_deleting);
        if fair {
            self.wait_for_server_b();
        }
        self.oracle.lock().unwrap().changed(Instant::now());
    }

    fn perform(&mut self, event: &Event, was_deleting: bool) {
        let member = &self.member;
        match event {
            Event::Cordon(on) => {
                member.patch(MERGE, &json!({"spec": {"unschedulable": on.then_some(true)}}));
            }
            Event::Ready(Ready::True) => member.set_condition("Ready", "True", "KubeletReady"),
            Event::Ready(Ready::False(reason)) => member.set_condition("Ready", "False", reason),
            Event::Ready(Ready::Unknown(reason)) => member.set_condition("Ready", "Unknown", reason),
            Event::Ready(Ready::Silent) => member.set_condition("Ready", "Unknown", "NodeStatusUnknown"),
            Event::Ready(Ready::Missing) => member.patch_status(&json!({
                "conditions": [{"$patch": "delete", "type": "Ready"}],
            })),
            Event::Taint(..) => self.write_taints(),
            Event::Exclude(on) => {
                member.patch(MERGE, &json!({"metadata": {"labels": {EXCLUDE: on.then_some("")}}}));
            }
            Event::DiskPressure(true) => {
                member.set_condition("DiskPressure", "True", "KubeletHasDiskPressure");
            }
            Event::DiskPressure(false) => {
                member.set_condition("DiskPressure", "False", "KubeletHasNoDiskPressure");
            }
            Event::Delete if was_deleting => {
                member.patch(MERGE, &json!({"metadata": {"finalizers": null}}));
            }
            Event::Deleting | Event::Delete => member.delete(),
            Event::Create => {
                (self.other_taint, self.other_label) = (false, false);
                member.create();
            }
            Event::Noise(noise) => self.make_noise(*noise),
        }
    }

    fn make_noise(&mut self, noise: Noise) {
        let number = fastrand::u32(..);
        match noise {
            Noise::Heartbeat => {
                self.member.set_condition(
                    "MemoryPressure",
                    "False",
                    &format!("KubeletHasSufficientMemory{number}"),
                );
            }
            Noise::Images => self.member.patch_status(&json!({
                "images": [{"names": [format!("example.com/image:{number}")], "sizeBytes": number}],
            })),
            Noise::OtherTaint => {
                self.other_taint = !self.other_taint;
                self.write_taints();
            }
            Noise::OtherLabel => {
                self.other_label = !self.other_label;
                let value = self.other_label.then_some("r1");
                self.member.patch(MERGE, &json!({"metadata": {"labels": {"example.com/rack": value}}}));
            }
        }
    }

    /// Writes all taints, because they are one list.
    fn write_taints(&self) {
        let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
        let mut taints: Vec<Value> = self.truth.taints.iter().map(taint).collect();
        if self.other_taint {
            taints.push(
                json!({"key": "example.com/maintenance", "value": "soon", "effect": "PreferNoSchedule"}),
            );
        }
        self.member.patch(MERGE, &json!({"spec": {"taints": taints}}));
    }

    /// Waits until the cache of the agent's API server has etcd's Node.
    fn wait_for_server_b(&self) {
        let version =
            |node: Result<Value, String>| node.map(|node| node["metadata"]["resourceVersion"].clone()).ok();
        let path = self.member.path();
        let written = version(self.cluster.api.get(&path));
        let cached = format!("{path}?resourceVersion=0");
        let knows = || (version(self.cluster.api.get_from_b(&cached)) == written).then_some(());
        until_within(PATIENCE, knows, || "API server B does not follow etcd".to_owned());
    }

    /// Plays one outage. Events continue if writes are possible, and afterwards until the agent has shown one
    /// of them.
    fn outage(&mut self, outage: Outage, length: Duration) -> Result<String, String> {
        let cluster = self.cluster;
        let began = Instant::now();
        self.oracle.lock().unwrap().breaking(Reach::Nothing, began);
        let cut = outage.begin(cluster);
        self.oracle.lock().unwrap().broken(Instant::now());
        while began.elapsed() < length {
            std::thread::sleep(SECOND);
            if !matches!(outage, Outage::EtcdFrozen) {
                self.event(false, false);
            }
        }
        let healing = Instant::now();
        self.oracle.lock().unwrap().healing(healing);
        outage.heal(cluster, cut);
        let consistent = || cluster.api.get_from_b("/api/v1/nodes?fieldSelector=metadata.name=none").ok();
        until_within(PATIENCE, consistent, || "API server B does not answer".to_owned());
        let able = Instant::now();
        loop {
            self.event(true, false);
            std::thread::sleep(SECOND / 2);
            let recovery = self.oracle.lock().unwrap().recovery(Instant::now());
            let (back, over) = recovery.expect("an outage");
            let late = (healing + back).saturating_duration_since(able);
            let lasted = healing - began;
            if over && late <= BACK_WITHIN {
                return Ok(format!(
                    "{outage:?} for {:.0} s: API server back after {:.1} s, the agent {:.1} s later",
                    lasted.as_secs_f64(),
                    (able - healing).as_secs_f64(),
                    late.as_secs_f64()
                ));
            }
            if able.elapsed() > BACK_WITHIN + allowance(self.machine.lag()) {
                self.oracle.lock().unwrap().give_up(Instant::now());
                return Err(format!(
                    "{outage:?} for {lasted:?}: the agent was not back within {BACK_WITHIN:?}"
                ));
            }
        }
    }
}

/// Runs for `REAL_MINUTES`, with the seed `REAL_SEED`.
#[test]
#[ignore = "make real-cluster-test"]
fn a_real_control_plane_under_events_and_outages_has_no_wrong_answer() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    // The node controller would change a Node without a kubelet.
    cluster.node_script(&["freeze", "controllers"]);
    let member = cluster.member(NODE);
    let agent_port = ports::free();
    let agent =
        cluster.agent(NODE, ServerRoute::B, "nodegate", &[&format!("--agent-check-port={agent_port}")]);
    agent.until_ready();
    wait_watches(&agent, 2.0);

    let seed = setting("REAL_SEED", fastrand::u64(..));
    let length = Duration::from_secs(setting("REAL_MINUTES", 5) * 60);
    println!("REAL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let truth = Truth::healthy();
    let oracle = Arc::new(Mutex::new(Oracle::new(STALE_AFTER, &truth, Instant::now())));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let machine = Arc::new(Machine::measure(|task| drop(runtime.spawn(task))));
    let doors = Doors { http: agent.address(), agent_check: ([127, 0, 0, 1], agent_port).into() };
    let balancers = Balancers::start(doors, oracle.clone(), machine.clone());
    let mut run = Run {
        cluster: &cluster,
        member,
        events: Events::new(seed),
        truth,
        other_taint: false,
        other_label: false,
        oracle,
        machine,
    };

    let began = Instant::now();
    let (mut outages, mut complaints) = (0, Vec::new());
    let mut order = Outage::ALL;
    random.shuffle(&mut order);
    while began.elapsed() < length {
        let fair = Instant::now();
        while fair.elapsed() < BETWEEN_OUTAGES {
            std::thread::sleep(SECOND);
            run.event(false, true);
        }
        // Two of three outages last until the cache must be stale.
        let share = if random.u32(..3) > 0 { 1.2 + 0.6 * random.f64() } else { 0.6 * random.f64() };
        let outage = order[outages % order.len()];
        outages += 1;
        match run.outage(outage, STALE_AFTER.mul_f64(share) + SECOND) {
            Ok(line) => println!("{line}"),
            Err(complaint) => complaints.push(complaint),
        }
    }
    let tally = balancers.take();
    drop(balancers);
    println!(
        "{} answers judged in {:.0} s, {outages} outages: {} wrong, {} failed; longest lag of the machine {:?}",
        tally.probes,
        began.elapsed().as_secs_f64(),
        tally.wrong,
        tally.failed,
        tally.lag
    );
    complaints.extend(tally.complaints);
    assert!(complaints.is_empty(), "{complaints:#?}\n{}", agent.log_text());
    assert!(tally.probes > 0 && outages > 0);
}
