//! Drainers that know nothing of nodegate, each in its own order and with its own retries. kubectl does what kubectl/pkg/drain
//! does by itself; the others evict by `kubectl create --raw`, which does not obey `Retry-After` itself but shows it.

use super::site::{Drained, NODES, Site, agent};
use nodegate_testbed::{http, until};
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Who drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drainer {
    /// `staging/src/k8s.io/kubectl/pkg/drain/drain.go` of kubernetes: evicts all pods at once; after a 429 each again 5 s later.
    Kubectl,
    /// `cmd/kured/main.go` of kured, 51220cc778a4: cordons and drains with kubectl's code, without a `--drain-delay`.
    Kured,
    /// `cluster-autoscaler/core/scaledown/actuation/drain.go` of autoscaler, 1d0777f716ca: taints; all pods at once; after any
    /// error each again 10 s later, for 120 s.
    Autoscaler,
    /// `pkg/controllers/node/termination/terminator/eviction.go` of karpenter, 2266468104f3: taints; after a 429 each pod again
    /// after 0.1 s, then after twice that, up to 10 s.
    Karpenter,
    /// `core/reconcilers/machine/drain/drain.go` and `core/reconcilers/machine/machine_controller.go` of cluster-api, ae7ff047db49:
    /// cordons; one pod after the other for up to 10 s; again 20 s later.
    ClusterApi,
    /// `pkg/controller/drain/drain_controller.go` of machine-config-operator, 8a0ada1b242e: cordons and drains with kubectl's code
    /// and a timeout of 90 s; again 1 min later.
    MachineConfigOperator,
}

impl Drainer {
    pub(super) const ALL: [Self; 6] = [
        Self::Kubectl,
        Self::Kured,
        Self::Autoscaler,
        Self::Karpenter,
        Self::ClusterApi,
        Self::MachineConfigOperator,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Kubectl => "kubectl drain",
            Self::Kured => "kured",
            Self::Autoscaler => "cluster-autoscaler",
            Self::Karpenter => "Karpenter",
            Self::ClusterApi => "Cluster API",
            Self::MachineConfigOperator => "machine config operator",
        }
    }

    /// Its own retry, once client-go no longer retries silently.
    pub(super) fn retries(self) -> &'static str {
        match self {
            Self::Kubectl | Self::Kured | Self::MachineConfigOperator => "5 s",
            Self::Autoscaler => "10 s",
            Self::Karpenter => "0.1 s to 10 s",
            Self::ClusterApi => "20 s",
        }
    }

    fn taint(self) -> Option<&'static str> {
        match self {
            Self::Autoscaler => Some("ToBeDeletedByClusterAutoscaler"),
            Self::Karpenter => Some("karpenter.sh/disrupted"),
            _ => None,
        }
    }
}

/// Why an eviction did not take place.
enum Refused {
    TooManyRequests,
    Gone,
    Other(String),
}

impl Site {
    /// Drains a node as this drainer does, and puts the node back into the pool.
    pub(super) fn drain_as(&self, number: usize, drainer: Drainer) -> Drained {
        let node = number % NODES.len();
        let began = Instant::now();
        let ended = AtomicBool::new(false);
        let pods = self.names_on(node);
        let told = thread::scope(|scope| {
            let told = scope.spawn(|| self.told_at(node, began, &ended));
            self.play(node, drainer);
            // The simulated scheduler knows cordons alone: others may have taken their place on a tainted node.
            let is_gone = |left: &[String]| pods.iter().all(|pod| !left.contains(pod));
            until("its pods to be gone", || is_gone(&self.names_on(node)).then_some(()));
            ended.store(true, Ordering::SeqCst);
            told.join().unwrap()
        });
        let evicted = self.first_eviction(node, began) - began;
        if let Some(taint) = drainer.taint() {
            self.kubectl(&["taint", "node", NODES[node], &format!("{taint}-")]);
        }
        self.bring_back(node);
        Drained { told, evicted }
    }

    fn play(&self, node: usize, drainer: Drainer) {
        let name = NODES[node];
        match drainer {
            Drainer::Kubectl | Drainer::Kured => self.kubectl(&["drain", name, "--ignore-daemonsets"]),
            Drainer::MachineConfigOperator => {
                self.kubectl(&["cordon", name]);
                self.kubectl(&["drain", name, "--ignore-daemonsets", "--force", "--timeout=90s"]);
            }
            Drainer::Autoscaler => {
                self.kubectl(&["taint", "node", name, "ToBeDeletedByClusterAutoscaler=1:NoSchedule"]);
                let give_up = Instant::now() + Duration::from_mins(2);
                self.all_at_once(node, |pod| {
                    while self.evict(pod).is_err_and(|refused| !matches!(refused, Refused::Gone)) {
                        assert!(Instant::now() < give_up, "{pod}: the autoscaler deletes it now");
                        thread::sleep(Duration::from_secs(10));
                    }
                });
            }
            Drainer::Karpenter => {
                self.kubectl(&["taint", "node", name, "karpenter.sh/disrupted:NoSchedule"]);
                self.all_at_once(node, |pod| {
                    let mut delay = Duration::from_millis(100);
                    while let Err(refused) = self.evict(pod) {
                        match refused {
                            Refused::Gone => break,
                            Refused::TooManyRequests => thread::sleep(delay),
                            Refused::Other(why) => panic!("{pod}: {why}"),
                        }
                        delay = (delay * 2).min(Duration::from_secs(10));
                    }
                });
            }
            Drainer::ClusterApi => {
                self.kubectl(&["cordon", name]);
                loop {
                    let until = Instant::now() + Duration::from_secs(10);
                    let pods = self.names_on(node);
                    let refused =
                        pods.iter().filter(|pod| Instant::now() >= until || self.evict(pod).is_err());
                    if refused.count() == 0 {
                        break;
                    }
                    thread::sleep(Duration::from_secs(20));
                }
            }
        }
    }

    fn all_at_once(&self, node: usize, evict: impl Fn(&str) + Sync) {
        let pods = self.names_on(node);
        thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| evict(pod));
            }
        });
    }

    fn names_on(&self, node: usize) -> Vec<String> {
        let pods = self.cluster.sim.list("pods");
        let here = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"] == NODES[node] && pod["metadata"]["deletionTimestamp"].is_null()
        });
        here.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// One call of client-go (`rest/with_retry.go`): after a 429 with `Retry-After` it waits and tries again, up to ten times.
    fn evict(&self, pod: &str) -> Result<(), Refused> {
        for _ in 0..10 {
            let (refused, retry_after) = match self.evict_once(pod) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match (refused, retry_after) {
                (Refused::TooManyRequests, Some(after)) => thread::sleep(after),
                (refused, _) => return Err(refused),
            }
        }
        self.evict_once(pod).map_err(|(refused, _)| refused)
    }

    fn evict_once(&self, pod: &str) -> Result<(), (Refused, Option<Duration>)> {
        let file = self.cluster.dir.path().join(format!("evict-{pod}.json"));
        let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": pod, "namespace": "default"}});
        fs::write(&file, eviction.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        let args = ["create", "--v=8", "--raw", &path, "--filename", file.to_str().unwrap()];
        let Err(said) = self.lan.act(|| self.cluster.admin().run(&args)) else { return Ok(()) };
        let header = said.split("Retry-After: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let retry_after = header.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let refused = if said.contains("denied the request") {
            Refused::TooManyRequests
        } else if said.contains("NotFound") {
            Refused::Gone
        } else {
            Refused::Other(said)
        };
        Err((refused, retry_after))
    }

    /// When the agent first said that all are told, if it did before the end.
    fn told_at(&self, node: usize, began: Instant, ended: &AtomicBool) -> Option<Duration> {
        let address = agent(node);
        self.lan.act(|| {
            while !ended.load(Ordering::SeqCst) {
                // What it says was true before it was asked.
                let asked = began.elapsed();
                let said = http::get(address, "/drain.json").ok();
                let drain: Value =
                    said.and_then(|reply| serde_json::from_str(&reply.body).ok()).unwrap_or_default();
                if drain["told"] == true {
                    return Some(asked);
                }
                thread::sleep(Duration::from_millis(20));
            }
            None
        })
    }
}
