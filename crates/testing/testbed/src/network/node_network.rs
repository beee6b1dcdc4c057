//! A node, its router and a resolver behind it, each in its own network namespace. Needs root.

// ```text
// node     eth0 10.77.0.2, fd77::2 ── 10.77.0.1, fe80::1   rt0  router
// router   rt1  10.78.0.1, fd78::1 ── 10.78.0.53, fd78::53 eth0 resolver
// ```

use crate::agent::Agent;
use crate::network::namespaces::{Namespace, Stay};
use crate::process::Program;
use crate::programs::{self, run};
use crate::scenario::Scenario;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tempfile::TempDir;

/// The user id of the agent in a cluster: manifests/install.yaml.
const UID: u32 = 65521;

/// The timing of the check `network` unless its settings begin with another one.
const TIMING: &str = "interval=200ms,timeout=4s,";

pub const RESOLVER_V4: &str = "10.78.0.53";
pub const RESOLVER_V6: &str = "fd78::53";

/// The three namespaces. Drop removes them. Until then, the thread that made them is on the node.
pub struct NodeNetwork {
    _on_node: Stay,
    resolver_program: Option<Program>,
    node: Namespace,
    pub router: Namespace,
    pub resolver: Namespace,
    files: TempDir,
}

const RESOLV_CONF: &str = "run/systemd/resolve/stub-resolv.conf";

const SETUP: &str = include_str!("node_network.ip");

impl NodeNetwork {
    /// Builds the network with the usual default routes of a node.
    pub fn start() -> Self {
        let net = Self::without_routes();
        net.node("ip route add default via 10.77.0.1 dev eth0");
        net.node("ip route add default via fe80::1 dev eth0");
        net
    }

    pub fn without_routes() -> Self {
        let [node, router, resolver] = ["node", "router", "resolver"].map(Namespace::new);
        let files = tempfile::tempdir().unwrap();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(files.path().join("host/etc")).unwrap();
        fs::create_dir_all(files.path().join("host/run/systemd/resolve")).unwrap();
        // A symlink, as on hosts with systemd-resolved. Outside of the host root, it points to another file.
        symlink(format!("/{RESOLV_CONF}"), files.path().join("host/etc/resolv.conf")).unwrap();
        for line in SETUP.lines() {
            let namespaces = [("{node}", &node), ("{router}", &router), ("{resolver}", &resolver)];
            let line = namespaces
                .iter()
                .fold(line.to_owned(), |line, (word, namespace)| line.replace(word, namespace.name()));
            run(&format!("ip {line}"));
        }
        let net = Self { _on_node: node.stay(), resolver_program: None, node, router, resolver, files };
        for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            net.router(&format!("echo 1 > /proc/sys/net/{family}"));
        }
        // The kernel notices a lost neighbor within two seconds instead of a minute.
        for family in ["ipv4", "ipv6"] {
            let of = format!("/proc/sys/net/{family}/neigh/eth0");
            net.node(&format!(
                "echo 500 > {of}/base_reachable_time_ms; echo 1 > {of}/delay_first_probe_time"
            ));
            net.node(&format!("echo 200 > {of}/retrans_time_ms"));
        }
        net
    }

    pub fn node(&self, command: &str) {
        self.node.shell(command);
    }

    pub fn router(&self, command: &str) {
        self.router.shell(command);
    }

    pub fn nameservers(&self, addresses: &[&str]) {
        let lines: Vec<String> = addresses.iter().map(|address| format!("nameserver {address}")).collect();
        fs::write(self.files.path().join("host").join(RESOLV_CONF), lines.join("\n")).unwrap();
    }

    /// Starts dnsmasq. It knows `node.test`, and that nothing else is below `test`. It refuses all other names.
    pub fn start_resolver(&mut self) {
        let mut command = self.resolver.command("dnsmasq");
        command
            .args("--keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --user=root".split(' '));
        command.args(["--pid-file=", "--bind-interfaces", "--local=/test/"]);
        command.arg("--host-record=node.test,10.77.0.2");
        command.args([RESOLVER_V4, RESOLVER_V6].map(|address| format!("--listen-address={address}")));
        self.resolver_program = Some(Program::start(&mut command));
    }

    /// Starts the agent on the node without any privilege, with these settings of the check.
    pub fn agent(&self, settings: &str) -> Agent {
        Agent::launch_alone(self.command(settings))
    }

    /// Starts the agent on the node in a cluster, which must have been started here, with further arguments.
    pub fn agent_of(&self, cluster: &Scenario, settings: &str, args: &[&str]) -> Agent {
        let everybody = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(cluster.dir.path(), everybody(0o755)).unwrap();
        fs::set_permissions(cluster.kubeconfig(), everybody(0o644)).unwrap();
        let mut command = self.command(settings);
        command.args(args);
        cluster.launch(command)
    }

    fn command(&self, settings: &str) -> Command {
        let timing = if settings.starts_with("interval=") { "" } else { TIMING };
        let mut command = Command::new(programs::agent_in(self.files.path()));
        command.uid(UID).gid(UID);
        command.arg("--host-root").arg(self.files.path().join("host"));
        let check = format!("--check-settings=network:{timing}{settings}");
        command.args(["--background-checks=network", &check]);
        command
    }
}
