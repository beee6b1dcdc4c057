//! The checks that answer from the cache, `node_ready`, `custom_conditions` and `service:`, beside a
//! simulated API server.

use crate::check_states::part::{Pace, Part, Says, State};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::{Agent, Cluster, NODE};
use serde_json::{Value, json};
use std::time::Duration;

/// The seconds until the agent declares a cache stale that it can't trust.
const STALE_WITHIN: u64 = 16;
/// The seconds until a dead kubelet's Node is Unknown: the controller manager's grace period and its check
/// interval.
const UNKNOWN_WITHIN: u64 = 50;
/// The seconds until the agent follows an API server again that has come back.
const BACK_WITHIN: u64 = 16;

const PLAYED_WITH: &str = "a simulated API server (`crates/testing/kube-sim`), kubelet and node controller, which answer as a \
                           kube-apiserver 1.36 was seen to: Debian has none";

fn cluster(pace: Pace) -> Cluster {
    let quick = |builder: nodegate_kube_sim::Builder| {
        builder.lease_interval(Duration::from_secs(1)).grace(Duration::from_secs(4))
    };
    Cluster::with(|builder| {
        let builder = builder.kubelets(true);
        if pace.is_quick() { quick(builder) } else { builder }
    })
}

fn agent(cluster: &Cluster, pace: Pace, args: &[&str]) -> Agent {
    let stale_after = if pace.is_quick() { "--stale-after=4s" } else { "--stale-after=15s" };
    cluster.agent(&[&[stale_after], args].concat())
}

fn kill(cluster: &Cluster) {
    cluster.wait(cluster.sim.kill());
}

fn restart(cluster: &Cluster) {
    cluster.wait(cluster.sim.restart(false)).unwrap();
}

pub(crate) struct NodeReady(Pace, Cluster);

impl Part for NodeReady {
    const CHECK: &'static str = "node_ready";
    const PLAYED_WITH: &'static str = PLAYED_WITH;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: there is no such Node", |_| (), Says::Fails("NodeNotFound")),
        State::new(
            "starting: registered, its kubelet has not reported",
            Self::register,
            Says::Fails("ReadyConditionMissing"),
        )
        .within(1),
        State::new("starting: Ready=False", Self::start_kubelet, Says::Fails("KubeletNotReady")).within(1),
        State::new("healthy", Self::be_ready, Says::Passes).within(1),
        State::new(
            "cordoned",
            |node: &mut Self| assert!(node.1.sim.cordon(NODE)),
            Says::Drains("Unschedulable"),
        )
        .within(1),
        State::new("uncordoned", |node: &mut Self| assert!(node.1.sim.uncordon(NODE)), Says::Passes)
            .within(1),
        State::new("the API server is slow: takes 1 s", Self::slow, Says::Passes)
            .newcomer_at_first(Says::PassesStale)
            .long(),
        State::new("the API server hangs", Self::hang, Says::PassesStale).within(STALE_WITHIN),
        State::new("goes on", |node: &mut Self| node.1.sim.heal(), Says::Passes).within(BACK_WITHIN),
        State::new("the API server refuses: killed", |node: &mut Self| kill(&node.1), Says::PassesStale)
            .within(STALE_WITHIN),
        State::new("started again, and the node was cordoned", Self::cordoned, Says::Drains("Unschedulable"))
            .within(BACK_WITHIN),
        State::new("lying: cut off from etcd, while another one uncordons", Self::cut_off, Says::PassesStale)
            .within(STALE_WITHIN)
            .long(),
        State::new("in touch again", |node: &mut Self| node.1.sim.mend_etcd(), Says::Passes)
            .within(BACK_WITHIN)
            .long(),
        State::new("the kubelet is dead, or hangs", Self::stop_kubelet, Says::Fails("NodeStatusUnknown"))
            .within(UNKNOWN_WITHIN)
            .long(),
        State::new(
            "the kubelet is started again",
            |node: &mut Self| node.1.sim.start_kubelet(NODE),
            Says::Passes,
        )
        .within(15)
        .long(),
        State::new("removed: the Node is deleted", Self::delete, Says::Fails("NodeNotFound")).within(1),
    ];

    fn start(pace: Pace) -> Self {
        let cluster = cluster(pace);
        cluster.sim.delete_node(NODE);
        Self(pace, cluster)
    }

    fn agent(&self) -> Agent {
        agent(&self.1, self.0, &[])
    }
}

impl NodeReady {
    fn register(&mut self) {
        self.1.sim.add_node(NODE);
        self.1.sim.remove_condition(NODE, "Ready");
    }

    fn start_kubelet(&mut self) {
        self.1.sim.set_ready(NODE, "False", "KubeletNotReady");
    }

    fn be_ready(&mut self) {
        self.1.sim.set_ready(NODE, "True", "KubeletReady");
    }

    fn slow(&mut self) {
        self.1.sim.faults().add(Effect::Latency { ms: 1000 }.on(FaultScope::all()));
    }

    fn hang(&mut self) {
        self.1.sim.faults().clear();
        self.1.sim.freeze();
    }

    fn cordoned(&mut self) {
        self.1.sim.cordon(NODE);
        restart(&self.1);
    }

    fn cut_off(&mut self) {
        self.1.sim.cut_off_from_etcd(&[]);
        self.1.sim.uncordon(NODE);
    }

    fn stop_kubelet(&mut self) {
        self.1.sim.stop_kubelet(NODE);
    }

    fn delete(&mut self) {
        self.1.sim.delete_node(NODE);
    }
}

pub(crate) struct Conditions(Pace, Cluster);

const PRESSURE: Says = Says::Fails("DiskPressure: KubeletHasDiskPressure");

impl Part for Conditions {
    const CHECK: &'static str = "custom_conditions";
    const PLAYED_WITH: &'static str = PLAYED_WITH;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: the Node has no such condition", Self::forget, Says::Passes),
        State::new("healthy: it is False", Self::clear, Says::Passes),
        State::new("it is True", Self::press, PRESSURE).within(1),
        State::new("the API server hangs", |node: &mut Self| node.1.sim.freeze(), Says::PassesStale)
            .within(STALE_WITHIN),
        State::new("goes on", |node: &mut Self| node.1.sim.heal(), PRESSURE).within(BACK_WITHIN),
        State::new("the kubelet is dead: it is Unknown", Self::stop_kubelet, Says::Passes)
            .within(UNKNOWN_WITHIN)
            .long(),
        State::new(
            "the kubelet is started again",
            |node: &mut Self| node.1.sim.start_kubelet(NODE),
            PRESSURE,
        )
        .within(15)
        .long(),
        State::new("removed: the Node is deleted", Self::delete, Says::Passes).within(1),
    ];

    fn start(pace: Pace) -> Self {
        Self(pace, cluster(pace))
    }

    fn agent(&self) -> Agent {
        agent(&self.1, self.0, &[])
    }
}

impl Conditions {
    fn forget(&mut self) {
        self.1.sim.remove_condition(NODE, "DiskPressure");
    }

    fn clear(&mut self) {
        self.1.sim.set_condition(NODE, "DiskPressure", "False", "KubeletHasNoDiskPressure");
    }

    fn press(&mut self) {
        self.1.sim.set_condition(NODE, "DiskPressure", "True", "KubeletHasDiskPressure");
    }

    fn stop_kubelet(&mut self) {
        self.1.sim.stop_kubelet(NODE);
    }

    fn delete(&mut self) {
        self.1.sim.delete_node(NODE);
    }
}

/// A Service whose only endpoint comes and goes.
pub(crate) struct Service(Pace, Cluster);

const NONE: Says = Says::Fails("NoLocalEndpoints");

impl Part for Service {
    const CHECK: &'static str = "service:default/web";
    const PLAYED_WITH: &'static str = PLAYED_WITH;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: there is no such Service", |_| (), NONE),
        State::new(
            "starting: its endpoint here is not ready",
            |service: &mut Self| service.endpoint(NODE, false, false),
            NONE,
        ),
        State::new("healthy", |service: &mut Self| service.endpoint(NODE, true, false), Says::Passes)
            .within(1),
        State::new(
            "its endpoint is on another node",
            |service: &mut Self| service.endpoint("n2", true, false),
            NONE,
        )
        .within(1),
        State::new("healthy again", |service: &mut Self| service.endpoint(NODE, true, false), Says::Passes)
            .within(1),
        State::new("the API server hangs", |service: &mut Self| service.1.sim.freeze(), Says::PassesStale)
            .within(STALE_WITHIN),
        State::new("goes on", |service: &mut Self| service.1.sim.heal(), Says::Passes).within(BACK_WITHIN),
        State::new("its endpoint here ends", |service: &mut Self| service.endpoint(NODE, false, true), NONE)
            .within(1),
        State::new(
            "the API server refuses: killed",
            |service: &mut Self| kill(&service.1),
            Says::FailsStale("NoLocalEndpoints"),
        )
        .newcomer(Says::PassesStale)
        .within(STALE_WITHIN),
        State::new("started again", |service: &mut Self| restart(&service.1), NONE).within(BACK_WITHIN),
        State::new(
            "healthy once more",
            |service: &mut Self| service.endpoint(NODE, true, false),
            Says::Passes,
        )
        .within(1),
        State::new("removed: its endpoints are deleted", Self::delete, NONE).within(1),
    ];

    fn start(pace: Pace) -> Self {
        let cluster = cluster(pace);
        cluster.allow_services();
        Self(pace, cluster)
    }

    fn agent(&self) -> Agent {
        agent(&self.1, self.0, &["--watch-service=default/web"])
    }
}

impl Service {
    #[expect(clippy::needless_pass_by_ref_mut, reason = "as all that changes the part")]
    fn endpoint(&mut self, node: &str, ready: bool, terminating: bool) {
        let conditions = json!({"ready": ready, "serving": true, "terminating": terminating});
        let slice: Value = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-a", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": node, "conditions": conditions}],
        });
        self.1.sim.apply(slice).unwrap();
    }

    fn delete(&mut self) {
        self.1.sim.delete("endpointslices", "default", "web-a");
    }
}
