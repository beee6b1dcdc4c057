//! A simulated cluster, agents with canned answers, and the program that queries them.

use crate::crowd::{self, Behaviour, Crowd};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) const NAMESPACE: &str = "nodegate";

pub(crate) struct Scenario {
    pub(crate) crowd: Crowd,
    cluster: nodegate_testbed::Scenario,
}

#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    pub(crate) fn has(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in texts {
            assert!(self.out.contains(text) || self.err.contains(text), "no {text:?} in {self:#?}");
        }
    }

    /// Returns the table's row for a node, with single spaces between its cells.
    pub(crate) fn row(&self, node: &str) -> String {
        let line = self.out.lines().find(|line| line.split_whitespace().next() == Some(node));
        let line = line.unwrap_or_else(|| panic!("no {node} in {self:#?}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn order(&self) -> Vec<&str> {
        let rows = self.out.lines().skip(1).take_while(|line| !line.is_empty());
        rows.filter_map(|line| line.split_whitespace().next()).collect()
    }
}

impl Deref for Scenario {
    type Target = nodegate_testbed::Scenario;

    fn deref(&self) -> &Self::Target {
        &self.cluster
    }
}

impl Scenario {
    /// Creates nodes whose agents answer in these behaviours, over TLS.
    pub(crate) fn new<S: Into<String>>(agents: impl IntoIterator<Item = (S, Behaviour)>) -> Self {
        let cluster = nodegate_testbed::Scenario::of(Sim::builder().tls(true));
        let sim = cluster.sim.clone();
        let crowd = Crowd::start(agents.into_iter().map(|(node, behaviour)| (node.into(), behaviour)));
        for (node, address) in crowd.nodes() {
            sim.add_node(node);
            sim.edit_node(node, "kubelet", |object| object["metadata"]["uid"] = json!(uid(node)));
            sim.set_addresses(node, &[address]);
            add_pod_of(&sim, "nodegate", node, address);
        }
        Self { crowd, cluster }
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.admin().kubeconfig().to_owned()
    }

    /// Writes a script that stands before the program of this name.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.file("bin").join(name);
        fs::create_dir_all(self.file("bin")).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Gives a command the administrator's credentials and the scenario's scripts.
    pub(crate) fn equip(&self, mut command: Command) -> Command {
        let path = format!("{}:{}", self.file("bin").display(), std::env::var("PATH").unwrap());
        // kubectl keeps its discovery cache in that home.
        command.env("PATH", path).env("KUBECONFIG", self.admin_kubeconfig()).env("HOME", self.file(""));
        command.env_remove("KUBERNETES_SERVICE_HOST");
        command
    }

    /// Returns the program with the administrator's credentials, and the port of the crowd.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.equip(program());
        command.args(args).arg(format!("--port={}", self.crowd.port()));
        // On a slow machine two seconds are too short.
        if !args.iter().any(|flag| flag.starts_with("--agent-timeout")) {
            command.arg("--agent-timeout=5s");
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        Said::of(&self.command(args).output().unwrap())
    }
}

/// Returns the program without any settings from the environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-nodegate"));
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR", "HTTPS_PROXY", "https_proxy"] {
        command.env_remove(name);
    }
    // kubectl would make that home for its cache.
    command.env("KUBECACHEDIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/kubectl"));
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub(crate) fn add_pod_of(sim: &Sim, app: &str, node: &str, address: IpAddr) {
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": format!("{app}-{node}"), "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": app},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": app, "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": app, "image": "i"}]},
        "status": {"phase": "Running", "podIP": address.to_string()},
    });
    sim.apply(pod).unwrap();
}

pub(crate) fn uid(node: &str) -> String {
    format!("uid-of-{node}")
}

/// Returns the answer of an agent on a ready node, with one balancer that has acknowledged.
pub(crate) fn ready(node: &str) -> Value {
    let mut status: Value = serde_json::from_str(include_str!("ready.json")).unwrap();
    (status["node"], status["uid"]) = (json!(node), json!(uid(node)));
    status["probers"] = json!([prober("10.0.0.5", "ready", 3, Some(true))]);
    status
}

pub(crate) fn prober(address: &str, verdict: &str, in_a_row: u32, acknowledged: Option<bool>) -> Value {
    json!({
        "address": address, "question": "/health", "standing": "regular", "sees_drains": true, "asked": 100,
        "first_ms": 60_000, "last_ms": 300, "interval_ms": 500, "code": if verdict == "ready" { 200 } else { 503 },
        "verdict": verdict, "in_a_row": in_a_row, "acknowledged": acknowledged,
    })
}

/// Returns the answer of an agent whose only client is a balancer with the default monitor of its vendor.
pub(crate) fn unseeing(node: &str) -> Value {
    let mut status = ready(node);
    let mut monitor = prober("10.0.0.7", "ready", 9, None);
    (monitor["question"], monitor["sees_drains"]) = (json!("GET /"), json!(false));
    status["probers"] = json!([monitor]);
    let drain = &mut status["drain"];
    drain["cant_see_drains"] = json!(["10.0.0.7 GET /"]);
    (drain["not_known"], drain["not_known_code"]) =
        (json!("no balancer probes this agent regularly"), json!("no_probers"));
    status
}

/// Returns the answer of an agent on a node that has been out for some seconds.
pub(crate) fn out(node: &str, verdict: &str, reason: &str, seconds: u64) -> Value {
    let mut status = ready(node);
    (status["verdict"], status["reason"]) = (json!(verdict), json!(reason));
    let check = &mut status["checks"][0];
    (check["passed"], check["verdict"], check["reason"]) = (json!(false), json!(verdict), json!(reason));
    status["flips"] = json!([{"at_unix_ms": 1, "age_ms": seconds * 1000, "from": "ready", "to": verdict, "reason": reason}]);
    status["probers"] = json!([prober("10.0.0.5", verdict, 8, Some(true))]);
    status["drain"]["since_ms"] = json!(seconds * 1000);
    status["drain"]["acknowledged"] = json!(true);
    status["drain"]["acknowledged_ready"] = json!(false);
    status
}

/// Adds the number of awaited probers, and of those that have acknowledged.
pub(crate) fn counted(mut status: Value) -> Value {
    let probers = status["probers"].as_array().cloned().unwrap_or_default();
    let awaited = probers.iter().filter(|prober| prober["sees_drains"] == true);
    status["drain"]["acknowledged_probers"] =
        json!(awaited.clone().filter(|prober| prober["acknowledged"] == true).count());
    status["drain"]["probers"] = json!(awaited.count());
    status
}

pub(crate) fn says(status: &Value) -> Behaviour {
    let json = counted(status.clone()).to_string();
    crowd::says(move || json.clone())
}
