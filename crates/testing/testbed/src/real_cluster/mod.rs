//! The real control plane and node of `hack/real-cluster`, which one test at a time uses.

mod api;
mod cable;
mod member;
mod power;
mod second_node;

pub use api::{Api, STRATEGIC};
pub use cable::CutCable;
pub use member::Member;
pub use power::{Power, now};
pub use second_node::{SECOND_NODE, SECOND_NODE_IP, SecondNode};

use crate::agent::Agent;
use crate::kubectl::Kubectl;
use crate::programs::{system, try_run};
use crate::waiting::until_within;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

pub const REAL_NODE: &str = "real-node";
/// The address of the cluster's node. The agents in pods listen there.
pub const REAL_NODE_IP: &str = "10.10.0.10";
/// The time limit for a restarted program on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(5);

static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// A route of test agents to the API servers. The cable `agent` cuts all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRoute {
    A,
    /// The second API server. The cable `etcd-b` belongs to it alone.
    B,
    /// The Service `kubernetes`. kube-proxy sends each connection to one of the two API servers.
    Service,
}

impl ServerRoute {
    pub fn url(self) -> &'static str {
        match self {
            Self::A => "https://10.10.3.1:6443",
            Self::B => "https://10.10.3.2:6443",
            Self::Service => "https://10.96.0.1:443",
        }
    }
}

/// The intact cluster: no cable is cut, every program runs, and the node is Ready and in the pool.
pub struct RealCluster {
    /// kubectl as the administrator, at API server A.
    pub kubectl: Kubectl,
    /// The administrator's access to the API servers.
    pub api: Api,
    pub files: TempDir,
    directory: PathBuf,
    _exclusive: MutexGuard<'static, ()>,
}

impl RealCluster {
    /// Waits until no other test uses the cluster, and repairs it.
    pub fn take() -> Self {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = std::env::var_os("REAL_CLUSTER").map(PathBuf::from);
        let directory = directory.expect("REAL_CLUSTER is not set: make real-cluster-test runs this");
        let files = tempfile::tempdir().unwrap();
        let kubectl = Kubectl::new(&directory.join("admin.kubeconfig"), files.path());
        let api = Api::new(directory.join("pki"));
        let cluster = Self { kubectl, api, files, directory, _exclusive: exclusive };
        cluster.make_whole();
        cluster
    }

    fn make_whole(&self) {
        self.node_script(&["repair"]);
        let into_service = r#"{"spec": {"unschedulable": null, "taints": null}}"#;
        let patch = ["patch", "node", REAL_NODE, "--type=merge", "--patch", into_service];
        until_so(|| self.kubectl.run(&patch).is_ok(), || "the node can't be uncordoned".to_owned());
        self.wait_node("True", REAL_NODE);
    }

    /// Runs `hack/real-node`. Panics if it fails.
    #[track_caller]
    pub fn node_script(&self, words: &[&str]) {
        self.script(words).unwrap_or_else(|error| panic!("real-node {words:?}: {error}"));
    }

    /// Runs `hack/real-node`, and returns its output, or what it reports as the error.
    fn script(&self, words: &[&str]) -> Result<String, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../hack/real-node");
        let said = try_run(system(script).args(words).env("REAL_CLUSTER", &self.directory));
        said.map(|out| out.trim().to_owned()).map_err(|error| error.trim().to_owned())
    }

    /// Returns the directory with logs and kubeconfigs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn apply(&self, manifests: &str) {
        let file = self.files.path().join("apply.yaml");
        fs::write(&file, manifests).unwrap();
        self.kubectl.must(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// Grants the agent's account the permissions of `manifests/install.yaml`, without agents.
    pub fn grant_agents(&self) {
        self.apply(&manifest_without("install.yaml", "DaemonSet"));
    }

    /// Removes everything that `manifests/install.yaml` has installed.
    pub fn remove_agents(&self) {
        let file = self.files.path().join("install.yaml");
        fs::write(&file, repository_file("manifests/install.yaml")).unwrap();
        let about = ["delete", "--ignore-not-found", "--timeout=5m", "--filename", file.to_str().unwrap()];
        if let Err(error) = self.kubectl.run(&about) {
            eprintln!("the agents can't be removed: {error}");
        }
    }

    /// Starts an agent as a process, with the permissions of this account in the namespace nodegate.
    pub fn agent(&self, node: &str, server: ServerRoute, account: &str, args: &[&str]) -> Agent {
        let kubeconfig = self.agent_kubeconfig(server, account);
        Agent::start(node, &kubeconfig, args)
    }

    pub fn agent_kubeconfig(&self, server: ServerRoute, account: &str) -> PathBuf {
        let token = self.kubectl.must(&["--namespace=nodegate", "create", "token", account, "--duration=2h"]);
        let file = self.files.path().join(format!("{server:?}-{account}.kubeconfig"));
        self.write_kubeconfig(server, &json!({"token": token.trim()}), &file);
        file
    }

    fn write_kubeconfig(&self, server: ServerRoute, user: &Value, file: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "real",
            "clusters": [{"name": "real", "cluster": {
                "server": server.url(), "certificate-authority": self.directory.join("pki/ca.crt"),
            }}],
            "users": [{"name": "agent", "user": user}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "agent"}}],
        });
        fs::write(file, config.to_string()).unwrap();
    }

    pub fn ready_condition(&self, node: &str) -> Option<(String, String)> {
        let node = self.api.get(&format!("/api/v1/nodes/{node}")).ok()?;
        let ready = ready_of(&node)?;
        Some((ready["status"].as_str()?.to_owned(), ready["reason"].as_str().unwrap_or_default().to_owned()))
    }

    #[track_caller]
    pub fn wait_node(&self, status: &str, node: &str) {
        let is = || self.ready_condition(node).is_some_and(|(found, _)| found == status);
        until_so(is, || format!("{node} did not become Ready={status}: {:?}", self.ready_condition(node)));
    }

    #[track_caller]
    pub fn wait_pod(&self, namespace: &str, pod: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        let about = ["--namespace", namespace, "describe", "pod", pod];
        until_so(
            || self.api.get(&path).is_ok_and(|pod| is_ready(&pod)),
            || self.kubectl.run(&about).unwrap_or_else(|error| error),
        );
    }

    /// Waits for an agent that runs in a pod, and returns its address.
    pub fn wait_pod_agent(&self) -> SocketAddr {
        let address: SocketAddr = (REAL_NODE_IP.parse::<std::net::IpAddr>().unwrap(), 25001).into();
        let reply = || crate::http::get(address, "/health");
        until_so(|| reply().is_ok_and(|reply| reply.status == 200 && !reply.is_stale()), || self.pods());
        address
    }

    /// Returns the content of the agents' namespace as text for people.
    pub fn pods(&self) -> String {
        let about = ["--namespace=nodegate", "describe", "daemonsets,pods"];
        self.kubectl.run(&about).unwrap_or_else(|error| error)
    }
}

fn ready_of(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

pub fn is_ready(pod: &Value) -> bool {
    ready_of(pod).is_some_and(|ready| ready["status"] == "True")
}

pub fn is_ending(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub fn seen(rule: &str, what: impl Display) {
    println!("{rule:<36} {what}");
}

/// Waits until this is so, as long as a restarted program may take.
#[track_caller]
pub fn until_so(mut so: impl FnMut() -> bool, explain: impl FnOnce() -> String) {
    until_within(DEADLINE, || so().then_some(()), explain);
}

/// Waits until the agent has opened this many watches.
pub fn wait_watches(agent: &Agent, count: f64) {
    let open = || agent.metric(r#"nodegate_api_requests_total{verb="watch",code="200"}"#) >= Some(count);
    until_so(open, || agent.all_it_says("its watches"));
}

/// Returns a file of `manifests/` without the objects of a kind.
pub fn manifest_without(file: &str, kind: &str) -> String {
    let (manifest, kind) = (repository_file(&format!("manifests/{file}")), format!("\nkind: {kind}\n"));
    let others = manifest.split("\n---\n").filter(|object| !object.contains(&kind));
    others.collect::<Vec<_>>().join("\n---\n")
}

pub fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
