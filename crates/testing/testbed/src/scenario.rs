//! The fixture of whole programs: a simulated cluster with the node `n1`, and agents with the rights of the manifests.

use crate::agent::Agent;
use crate::kubectl::Kubectl;
use crate::network::ports;
use crate::stub::read_request;
use nodegate_kube_sim::{Builder, Rule, Sim};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const NODE: &str = "n1";
pub const TOKEN: &str = "agent-token";

/// A simulated cluster and its agents. Drop removes it.
pub struct Scenario {
    pub sim: Sim,
    pub dir: TempDir,
    runtime: Runtime,
}

/// Returns the permissions of manifests/install.yaml.
fn agent_rules() -> Vec<Rule> {
    vec![
        Rule::allow(&["get", "list", "watch"], "", &["nodes"]),
        Rule::allow(&["list", "watch"], "coordination.k8s.io", &["leases"]).in_namespace("kube-node-lease"),
    ]
}

impl Scenario {
    /// Returns a cluster over TLS whose kubelet renews its Lease.
    pub fn start() -> Self {
        Self::with(|builder| builder.kubelets(true))
    }

    pub fn with(set: impl FnOnce(Builder) -> Builder) -> Self {
        Self::of(set(Sim::builder().tls(true).node(NODE)))
    }

    /// Returns a cluster with the nodes and settings of this builder alone.
    pub fn of(builder: Builder) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sim = runtime.block_on(builder.start()).unwrap();
        sim.service_account(TOKEN, "nodegate", "nodegate", agent_rules());
        let dir = tempfile::Builder::new().prefix("nodegate-").tempdir().unwrap();
        let cluster = Self { sim, dir, runtime };
        cluster.write_kubeconfig();
        cluster
    }

    /// Gives the agent the permissions of `manifests/services.yaml`.
    pub fn allow_services(&self) {
        let slices = Rule::allow(&["list", "watch"], "discovery.k8s.io", &["endpointslices"]);
        let rules = agent_rules().into_iter().chain([slices]).collect();
        self.sim.service_account(TOKEN, "nodegate", "nodegate", rules);
    }

    pub fn admin(&self) -> Kubectl {
        let kubeconfig = self.file("admin.kubeconfig");
        if !kubeconfig.exists() {
            self.sim.write_kubeconfig(&kubeconfig).unwrap();
        }
        Kubectl::new(&kubeconfig, self.dir.path())
    }

    /// Runs kubectl as the administrator. Panics if it fails.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) {
        self.admin().must(args);
    }

    pub fn agent(&self, args: &[&str]) -> Agent {
        Agent::start(NODE, &self.kubeconfig(), args)
    }

    pub fn launch(&self, mut command: Command) -> Agent {
        command.env("NODE_NAME", NODE).env("KUBECONFIG", self.kubeconfig());
        Agent::launch(command)
    }

    pub fn ready_agent(&self, args: &[&str]) -> Agent {
        let agent = self.agent(args);
        agent.wait_ready();
        agent
    }

    /// Starts an agent after another one that had listened for minutes: it knows its probers at once.
    pub fn succeeding_agent(&self, args: &[&str]) -> Agent {
        const STATUS: &str = r#"{"drain":{"listening_ms":400000}}"#;
        let port = ports::free();
        // Both listen there, as during an upgrade.
        let before = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        before.set_reuse_port(true).unwrap();
        before.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
        before.listen(1).unwrap();
        let before = TcpListener::from(before);
        let asked = thread::spawn(move || {
            let (mut stream, _) = before.accept().unwrap();
            read_request(&mut stream);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{STATUS}", STATUS.len()).unwrap();
        });
        let agent = self.agent(&[args, &[&format!("--listen-port={port}")]].concat());
        asked.join().unwrap();
        agent
    }

    /// Writes the agent's kubeconfig. It must be written again after a CA rotation.
    pub fn write_kubeconfig(&self) {
        std::fs::write(self.kubeconfig(), self.sim.kubeconfig_for(TOKEN)).unwrap();
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn kill_api(&self) {
        self.wait(self.sim.kill());
    }

    pub fn restart_api(&self) {
        self.wait(self.sim.restart(false)).unwrap();
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}
