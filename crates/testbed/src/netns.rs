//! A node, its router and a resolver behind it, each in a network namespace of its own. Needs root.
//!
//! ```text
//! node eth0 10.77.0.2, fd77::2 ── 10.77.0.1, fe80::1 rt0 router rt1 10.78.0.1, fd78::1 ── 10.78.0.53, fd78::53 eth0 resolver
//! ```

use crate::agent::Agent;
use crate::poll::until;
use crate::programs;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// As which the agent runs in a cluster: manifests/base.
const UID: u32 = 65532;

/// The router's address on the node's network.
pub const ROUTER_V4: &str = "10.77.0.1";
/// The router's link-local address, to which IPv6 default routes lead.
pub const ROUTER_V6: &str = "fe80::1";
/// The resolver's IPv4 address.
pub const RESOLVER_V4: &str = "10.78.0.53";
/// The resolver's IPv6 address.
pub const RESOLVER_V6: &str = "fd78::53";

/// The three namespaces; gone when dropped. The thread that made it is in the node's.
pub struct Lab {
    name: String,
    files: TempDir,
    resolver: Option<Child>,
}

const RESOLV_CONF: &str = "run/systemd/resolve/stub-resolv.conf";

const SETUP: &str = "\
link add eth0 netns {node} type veth peer name rt0 netns {router}
link add eth0 netns {resolver} type veth peer name rt1 netns {router}
-n {node} addr add 10.77.0.2/24 dev eth0
-n {node} addr add fd77::2/64 dev eth0 nodad
-n {router} addr add 10.77.0.1/24 dev rt0
-n {router} addr add fd77::1/64 dev rt0 nodad
-n {router} addr add fe80::1/64 dev rt0 nodad
-n {router} addr add 10.78.0.1/24 dev rt1
-n {router} addr add fd78::1/64 dev rt1 nodad
-n {resolver} addr add 10.78.0.53/24 dev eth0
-n {resolver} addr add fd78::53/64 dev eth0 nodad
-n {node} link set lo up
-n {node} link set eth0 up
-n {router} link set rt0 up
-n {router} link set rt1 up
-n {resolver} link set eth0 up
-n {resolver} route add default via 10.78.0.1
-n {resolver} route add default via fd78::1";

impl Lab {
    /// Builds it, with the default routes that a node has.
    pub fn start() -> Self {
        let lab = Self::without_routes();
        lab.node("ip route add default via 10.77.0.1 dev eth0");
        lab.node("ip route add default via fe80::1 dev eth0");
        lab
    }

    /// Builds it, and the node has no default route.
    pub fn without_routes() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        assert!(geteuid().is_root(), "this test makes network namespaces and must run as root");
        let name = format!("ng{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let files = tempfile::tempdir().unwrap();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(files.path().join("host/etc")).unwrap();
        fs::create_dir_all(files.path().join("host/run/systemd/resolve")).unwrap();
        // As on hosts with systemd-resolved. On this machine the link leads elsewhere.
        symlink(format!("/{RESOLV_CONF}"), files.path().join("host/etc/resolv.conf")).unwrap();
        let lab = Self { name, files, resolver: None };
        for part in ["node", "router", "resolver"] {
            run(&format!("ip netns add {}", lab.namespace(part)));
        }
        for line in SETUP.lines() {
            let words = ["node", "router", "resolver"].into_iter();
            let line = words.fold(line.to_owned(), |line, part| {
                line.replace(&format!("{{{part}}}"), &lab.namespace(part))
            });
            run(&format!("ip {line}"));
        }
        for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            lab.router(&format!("echo 1 > /proc/sys/net/{family}"));
        }
        // A neighbour that went is noticed within two seconds instead of a minute.
        for family in ["ipv4", "ipv6"] {
            let of = format!("/proc/sys/net/{family}/neigh/eth0");
            lab.node(&format!(
                "echo 500 > {of}/base_reachable_time_ms; echo 1 > {of}/delay_first_probe_time"
            ));
            lab.node(&format!("echo 200 > {of}/retrans_time_ms"));
        }
        lab.enter("node");
        lab
    }

    fn namespace(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Moves this thread, and the processes that it will start.
    fn enter(&self, part: &str) {
        enter(&self.namespace(part));
    }

    /// Does something elsewhere. Threads and processes that it starts stay there.
    pub fn at<T: Send>(&self, part: &str, act: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.namespace(part), act)
    }

    /// Runs a shell command on the node.
    pub fn node(&self, command: &str) {
        self.shell("node", command);
    }

    /// Runs a shell command on the router.
    pub fn router(&self, command: &str) {
        self.shell("router", command);
    }

    /// Runs a shell command where the resolver is.
    pub fn at_resolver(&self, command: &str) {
        self.shell("resolver", command);
    }

    /// What a program on the node says.
    pub fn node_says(&self, command: &str) -> String {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap());
        program.args(words);
        let output = self.at("node", move || program.output().unwrap());
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn shell(&self, part: &str, command: &str) {
        let path = "/usr/sbin:/sbin:/usr/bin:/bin";
        let namespace = self.namespace(part);
        let status = Command::new("/usr/bin/env")
            .args([&format!("PATH={path}"), "ip", "netns", "exec", &namespace, "sh", "-ec", command])
            .status()
            .unwrap();
        assert!(status.success(), "{part}: {command}");
    }

    /// Writes the node's resolv.conf.
    pub fn nameservers(&self, addresses: &[&str]) {
        let lines: Vec<String> = addresses.iter().map(|address| format!("nameserver {address}")).collect();
        fs::write(self.files.path().join("host").join(RESOLV_CONF), lines.join("\n")).unwrap();
    }

    /// Starts dnsmasq, which knows `node.test`, knows that nothing else is below `test`, has too much to say for a datagram
    /// of `big.test`, and refuses the rest.
    pub fn start_resolver(&mut self) {
        let mut command = Command::new("/usr/sbin/dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--user=root",
        ]);
        command.args([
            "--pid-file=",
            "--bind-interfaces",
            "--local=/test/",
            "--host-record=node.test,10.77.0.2",
        ]);
        command.args([RESOLVER_V4, RESOLVER_V6].map(|address| format!("--listen-address={address}")));
        command.args((1..=100).map(|n| format!("--host-record=big.test,10.1.0.{n}")));
        command.stderr(Stdio::null());
        let child = self.at("resolver", move || command.spawn().expect("dnsmasq starts"));
        self.resolver = Some(child);
    }

    /// Freezes the resolver, or lets it go on.
    pub fn signal_resolver(&self, signal: Signal) {
        let pid = i32::try_from(self.resolver.as_ref().unwrap().id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Ends dnsmasq at once.
    pub fn kill_resolver(&mut self) {
        if let Some(mut resolver) = self.resolver.take() {
            resolver.kill().unwrap();
            resolver.wait().unwrap();
        }
    }

    /// The agent on the node, without any privilege.
    pub fn agent(&self, settings: &str) -> Agent {
        self.agent_within("4s", settings)
    }

    /// The same with another timeout of the check.
    pub fn agent_within(&self, timeout: &str, settings: &str) -> Agent {
        let mut command = Command::new(programs::agent_in(self.files.path()));
        command.uid(UID).gid(UID).env_remove("KUBECONFIG").env("NODE_NAME", "n1");
        command.arg("--host-root").arg(self.files.path().join("host"));
        let check = format!("--check=network:interval=200ms,timeout={timeout},{settings}");
        command.args(["--checks=network", &check]);
        Agent::launch(command)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill_resolver();
        for part in ["node", "router", "resolver"] {
            let _ = Command::new("/usr/sbin/ip").args(["netns", "del", &self.namespace(part)]).status();
        }
    }
}

fn enter(namespace: &str) {
    let file = fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Does something in a network namespace. Threads and processes that it starts stay there.
pub fn in_namespace<T: Send>(namespace: &str, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let there = || {
            enter(namespace);
            act()
        };
        scope.spawn(there).join().unwrap()
    })
}

/// Runs a program of /usr/sbin; its words are separated by single spaces.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let program = format!("/usr/sbin/{}", words.next().unwrap());
    let status = Command::new(program).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

/// Waits until the `network` check says so; an empty reason means that it passes.
pub fn wait_network(agent: &Agent, reason: &str) -> String {
    let mut last = String::new();
    until(&format!("network to say {reason:?}"), || {
        let reply = agent.get("/health?check=network");
        last.clone_from(&reply.body);
        let json = reply.json();
        let check = &json["checks"][0];
        let found = check["reason"].as_str().unwrap_or_default().to_owned();
        let matches = match reason {
            "" => reply.status == 200 && check["passed"] == true,
            reason => reply.status == 503 && found.contains(reason),
        };
        matches.then_some(found)
    });
    eprintln!("{last}");
    last
}
