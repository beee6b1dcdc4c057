//! Drainers that know nothing of nodegate, each in its own order and with its own retries. kubectl does what kubectl/pkg/drain
//! does by itself; the others evict by `kubectl create --raw`, which does not obey `Retry-After` itself but shows it.

use super::site::{Drained, NODES, Site, agent};
use nodegate_testbed::{http, until};
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A tool that drains a node.
pub(super) struct Drainer {
    pub(super) title: &'static str,
    /// Its own retry, once client-go no longer retries silently.
    pub(super) retries: &'static str,
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
        Self { title: "kubectl drain", retries: "5 s", taint: None, evicts: Evicts::Kubectl(&[]) },
        // `cmd/kured/main.go` of kured, 51220cc778a4: kubectl's code, without a `--drain-delay`.
        Self { title: "kured", retries: "5 s", taint: None, evicts: Evicts::Kubectl(&[]) },
        // `cluster-autoscaler/core/scaledown/actuation/drain.go` of autoscaler, 1d0777f716ca: again 10 s later, for 120 s.
        Self {
            title: "cluster-autoscaler",
            retries: "10 s",
            taint: Some("ToBeDeletedByClusterAutoscaler"),
            evicts: Evicts::AtOnce(Duration::from_secs(10), 1),
        },
        // `pkg/controllers/node/termination/terminator/eviction.go` of karpenter, 2266468104f3.
        Self {
            title: "Karpenter",
            retries: "0.1 s to 10 s",
            taint: Some("karpenter.sh/disrupted"),
            evicts: Evicts::AtOnce(Duration::from_millis(100), 2),
        },
        // `core/reconcilers/machine/drain/drain.go` and `core/reconcilers/machine/machine_controller.go` of cluster-api,
        // ae7ff047db49.
        Self {
            title: "Cluster API",
            retries: "20 s",
            taint: None,
            evicts: Evicts::InTurn(Duration::from_secs(20)),
        },
        // `pkg/controller/drain/drain_controller.go` of machine-config-operator, 8a0ada1b242e: kubectl's code with a timeout
        // of 90 s; again 1 min later.
        Self {
            title: "machine config operator",
            retries: "5 s",
            taint: None,
            evicts: Evicts::Kubectl(&["--force", "--timeout=90s"]),
        },
    ];
}

/// Why an eviction did not take place.
enum Refused {
    TooManyRequests,
    Gone,
    Other,
}

impl Site {
    /// Drains a node as this drainer does, and puts the node back into the pool.
    pub(super) fn drain_as(&self, number: usize, drainer: &Drainer) -> Drained {
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
        if let Some(taint) = drainer.taint {
            self.kubectl(&["taint", "node", NODES[node], &format!("{taint}-")]);
        }
        self.bring_back(node);
        Drained { told, evicted }
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
            self.evict(pod).is_err_and(|refused| !matches!(refused, Refused::Gone))
        };
        match drainer.evicts {
            Evicts::Kubectl(options) => {
                self.kubectl(&[&["drain", name, "--ignore-daemonsets"], options].concat());
            }
            Evicts::AtOnce(first, factor) => thread::scope(|scope| {
                for pod in self.names_on(node) {
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
                let pods = self.names_on(node);
                if pods.iter().filter(|pod| Instant::now() >= until || is_refused(pod)).count() == 0 {
                    break;
                }
                thread::sleep(wait);
            },
        }
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
            Refused::Other
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
