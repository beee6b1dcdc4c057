//! Drainers that know nothing of nodegate, each in its own order and with its own retries, and the eviction gate, as the
//! API server's webhook. kubectl does what kubectl/pkg/drain does by itself; the others evict by `kubectl create --raw`,
//! which does not obey `Retry-After` itself but shows it.

use super::setup::{DRAIN_ON, Drained, Drains, agent};
use crate::nodes::NODES;
use nodegate_testbed::process::Program;
use nodegate_testbed::{http, programs, until, until_or};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(super) struct Drainer {
    pub(super) title: &'static str,
    /// The taint that it sets. Without one, it cordons.
    taint: Option<&'static str>,
    evicts: Evicts,
}

enum Evicts {
    /// With kubectl's code and these options.
    Kubectl(&'static [&'static str]),
    /// All pods at once, each again after a wait that grows by this factor, up to 10 s.
    AtOnce(Duration, u32),
    /// One pod after the other for up to 10 s, and again after this wait.
    InTurn(Duration),
}

impl Drainer {
    pub(super) const ALL: &'static [Self] = &[
        // `staging/src/k8s.io/kubectl/pkg/drain/drain.go` of kubernetes: all pods at once; after a 429 each again 5 s later.
        Self { title: "kubectl drain", taint: None, evicts: Evicts::Kubectl(&[]) },
        // `cmd/kured/main.go` of kured, 51220cc778a4: kubectl's code, without a `--drain-delay`.
        Self { title: "kured", taint: None, evicts: Evicts::Kubectl(&[]) },
        // `cluster-autoscaler/core/scaledown/actuation/drain.go` of autoscaler, 1d0777f716ca: again 10 s later, for 120 s.
        Self {
            title: "cluster-autoscaler",
            taint: Some("ToBeDeletedByClusterAutoscaler"),
            evicts: Evicts::AtOnce(Duration::from_secs(10), 1),
        },
        // `pkg/controllers/node/termination/terminator/eviction.go` of karpenter, 2266468104f3.
        Self {
            title: "Karpenter",
            taint: Some("karpenter.sh/disrupted"),
            evicts: Evicts::AtOnce(Duration::from_millis(100), 2),
        },
        // `core/reconcilers/machine/drain/drain.go` and `core/reconcilers/machine/machine_controller.go` of cluster-api,
        // ae7ff047db49.
        Self { title: "Cluster API", taint: None, evicts: Evicts::InTurn(Duration::from_secs(20)) },
        // `pkg/controller/drain/drain_controller.go` of machine-config-operator, 8a0ada1b242e: kubectl's code with a timeout
        // of 90 s; again 1 min later.
        Self {
            title: "machine config operator",
            taint: None,
            evicts: Evicts::Kubectl(&["--force", "--timeout=90s"]),
        },
    ];
}

impl Drains {
    /// Drains a node as this drainer does, and puts the node back into the pool.
    pub(super) fn drain_as(&self, number: usize, drainer: &Drainer) -> Drained {
        let node = number % NODES.len();
        let began = Instant::now();
        let ended = AtomicBool::new(false);
        let pods = self.pods_on(node);
        let acknowledged = thread::scope(|scope| {
            let acknowledged = scope.spawn(|| self.acknowledged_at(node, began, &ended));
            self.play(node, drainer);
            // The simulated scheduler knows cordons alone: others may have taken their place on a tainted node.
            let is_gone = |left: &[String]| pods.iter().all(|pod| !left.contains(pod));
            until("its pods to be gone", || is_gone(&self.pods_on(node)).then_some(()));
            ended.store(true, Ordering::SeqCst);
            acknowledged.join().unwrap()
        });
        let evicted = self.first_eviction(node, began) - began;
        if let Some(taint) = drainer.taint {
            self.kubectl(&["taint", "node", NODES[node], &format!("{taint}-")]);
        }
        self.bring_back(node);
        Drained { acknowledged, evicted }
    }

    fn play(&self, node: usize, drainer: &Drainer) {
        let name = NODES[node];
        match drainer.taint {
            Some(taint) => self.kubectl(&["taint", "node", name, &format!("{taint}=1:NoSchedule")]),
            None => self.kubectl(&["cordon", name]),
        }
        let give_up = Instant::now() + Duration::from_mins(2);
        let is_refused = |pod: &str| {
            assert!(Instant::now() < give_up, "{pod}: the drainer gives up");
            self.evict(pod).is_some_and(|said| !said.contains("NotFound"))
        };
        match drainer.evicts {
            Evicts::Kubectl(options) => {
                self.kubectl(&[&["drain", name, "--ignore-daemonsets"], options].concat());
            }
            Evicts::AtOnce(first, factor) => thread::scope(|scope| {
                for pod in self.pods_on(node) {
                    scope.spawn(move || {
                        let mut delay = first;
                        while is_refused(&pod) {
                            thread::sleep(delay);
                            delay = (delay * factor).min(Duration::from_secs(10));
                        }
                    });
                }
            }),
            Evicts::InTurn(wait) => loop {
                let until = Instant::now() + Duration::from_secs(10);
                let pods = self.pods_on(node);
                if pods.iter().filter(|pod| Instant::now() >= until || is_refused(pod)).count() == 0 {
                    break;
                }
                thread::sleep(wait);
            },
        }
    }

    /// One call of client-go (`rest/with_retry.go`): after a 429 with `Retry-After` it waits and tries again, up to ten times.
    /// Returns the error, if the eviction did not take place.
    fn evict(&self, pod: &str) -> Option<String> {
        let mut tries = 0;
        loop {
            let said = self.evict_once(pod)?;
            let header = said.split("Retry-After: ").nth(1).and_then(|rest| rest.split_whitespace().next());
            match header.and_then(|seconds| seconds.parse().ok()) {
                Some(seconds) if tries < 10 && said.contains("denied the request") => {
                    thread::sleep(Duration::from_secs(seconds));
                }
                _ => return Some(said),
            }
            tries += 1;
        }
    }

    fn evict_once(&self, pod: &str) -> Option<String> {
        let file = self.nodes.cluster.dir.path().join(format!("evict-{pod}.json"));
        let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": pod, "namespace": "default"}});
        fs::write(&file, eviction.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        let args = ["create", "--v=8", "--raw", &path, "--filename", file.to_str().unwrap()];
        self.router().act(|| self.nodes.cluster.admin().run(&args)).err()
    }

    /// When the agent first said that all have acknowledged, if it did before the end.
    fn acknowledged_at(&self, node: usize, began: Instant, ended: &AtomicBool) -> Option<Duration> {
        let address = agent(node);
        self.router().act(|| {
            while !ended.load(Ordering::SeqCst) {
                // What it says was true before it was asked.
                let asked = began.elapsed();
                let said = http::get(address, "/drain.json").ok();
                if said.is_some_and(|reply| reply.json()["acknowledged"] == true) {
                    return Some(asked);
                }
                thread::sleep(Duration::from_millis(20));
            }
            None
        })
    }
}

const MANIFEST: &str = include_str!("../../../manifests/eviction-gate.yaml");
const NAME: &str = "nodegate-eviction-gate";
const REVIEWS: u16 = 25_005;
const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 25_006);

pub(super) struct Gate<'a> {
    scenario: &'a Drains,
    _program: Program,
}

impl Drains {
    /// Starts the gate, and waits until evictions come to it.
    pub(super) fn gate(&self) -> Gate<'_> {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).unwrap();
        objects.retain(|object| {
            object["kind"] == "Secret" || object["kind"] == "ValidatingWebhookConfiguration"
        });
        objects.push(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "nodegate"}}));
        objects.push(
            json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"name": NAME, "namespace": "nodegate", "labels": {"kubernetes.io/service-name": NAME}},
            "endpoints": [{"addresses": [HEALTH.ip()], "conditions": {"ready": true}}],
            "ports": [{"port": REVIEWS}]}),
        );
        for object in objects {
            self.nodes.cluster.sim.apply(object).unwrap();
        }
        let mut command = self.router().command(programs::eviction_gate());
        command.env("KUBECONFIG", self.nodes.cluster.admin().kubeconfig());
        command.arg(DRAIN_ON);
        command.arg(format!("--listen={}:{REVIEWS}", HEALTH.ip())).arg(format!("--health-listen={HEALTH}"));
        let gate = Gate { scenario: self, _program: Program::start(&mut command) };
        until_or(
            || gate.metrics().contains("nodegate_gate_self_check_passed 1").then_some(()),
            || format!("the gate is not asked:\n{}", gate.metrics()),
        );
        gate
    }
}

impl Gate<'_> {
    pub(super) fn metrics(&self) -> String {
        let page = self.scenario.router().act(|| http::get(HEALTH, "/metrics"));
        page.map_or_else(|error| error.to_string(), |page| page.body)
    }

    /// How many evictions went on although balancers may not have known.
    pub(super) fn unacknowledged(&self) -> u64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix("nodegate_gate_unacknowledged_total "));
        value.and_then(|value| value.parse().ok()).expect("the gate's metrics")
    }
}
