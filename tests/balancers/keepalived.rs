//! Debian's keepalived: an address that stays with a node that is ready. Each node is a network namespace with
//! keepalived and an agent in it, all of them within one that this test has for itself.

use crate::site::{HTTP_PORT, NODES, documented};
use nodegate_testbed::agent::Agent;
use nodegate_testbed::cluster::Cluster;
use nodegate_testbed::poll::until;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");
const ADDRESS: &str = "10.0.0.10/24";

fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

/// Runs something that must work; what it says.
fn run(words: &str) -> String {
    let mut words = words.split(' ');
    let output = program(words.next().unwrap()).args(words.clone()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", words.collect::<Vec<_>>().join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

struct Node {
    holder: Child,
    keepalived: Child,
    agent: Agent,
}

impl Node {
    fn start(index: usize, cluster: &Cluster) -> Self {
        let holder = program("unshare").args(["-n", "sleep", "600"]).spawn().unwrap();
        let pid = holder.id();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        until("a namespace", || {
            std::fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|net| *net != own)
        });
        run(&format!("ip link add n{index} type veth peer name eth0 netns {pid}"));
        run(&format!("ip link set n{index} master lan up"));
        let inside = format!("nsenter -t {pid} -n");
        run(&format!("{inside} ip link set lo up"));
        run(&format!("{inside} ip addr add 10.0.0.1{}/24 dev eth0", index + 1));
        run(&format!("{inside} ip link set eth0 up"));
        Self {
            keepalived: keepalived(pid, index, cluster.dir.path()),
            agent: agent(pid, index, cluster),
            holder,
        }
    }

    fn holds_the_address(&self) -> bool {
        run(&format!("nsenter -t {} -n ip -4 addr show dev eth0", self.holder.id())).contains(ADDRESS)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in [&mut self.keepalived, &mut self.holder] {
            // Asked, keepalived ends its children, too.
            drop(Command::new("kill").arg(child.id().to_string()).status());
            let _ = child.wait();
        }
    }
}

fn keepalived(pid: u32, index: usize, dir: &Path) -> Child {
    let file = |name: &str| dir.join(format!("{name}-{index}"));
    let mut command = program("nsenter");
    command.args(["-t", &pid.to_string(), "-n", "keepalived", "-n", "-l", "-P", "-f"]);
    // By curl on one, by the agent's own program on the other.
    let name = ["vrrp.conf", "vrrp-status.conf"][index % 2];
    command.arg(format!("{DOCS}/keepalived/{name}"));
    command.arg("-p").arg(file("pid")).arg("-r").arg(file("vrrp"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn agent(pid: u32, index: usize, cluster: &Cluster) -> Agent {
    let mut command = program("nsenter");
    command.args(["-t", &pid.to_string(), "-n", env!("CARGO_BIN_EXE_nodegate")]);
    command.arg(format!("--listen-port={HTTP_PORT}"));
    command.env("NODE_NAME", NODES[index]).env("KUBECONFIG", cluster.kubeconfig());
    Agent::launch(command)
}

/// Which of the nodes holds the address, once exactly one does.
fn holder(nodes: &[Node]) -> Option<usize> {
    let mut holders = nodes.iter().enumerate().filter(|(_, node)| node.holds_the_address());
    let (index, _) = holders.next()?;
    holders.next().is_none().then_some(index)
}

#[test]
fn keepalived_takes_its_configurations() {
    for name in documented("keepalived") {
        let checked = program("keepalived").args(["-t", "-f", &format!("{DOCS}/{name}")]).output();
        let checked = checked.expect("keepalived is needed: make tools");
        // Content, 2.2.7 ends itself with SIGTERM; else it says why, with an exit code.
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(told.is_empty() && matches!(checked.status.code(), None | Some(0)), "{name}: {told}");
    }
}

#[test]
fn the_address_goes_to_a_node_that_is_ready() {
    assert!(rustix::process::geteuid().is_root(), "network namespaces are for root: run the tests as root");
    let own = std::env::current_exe().unwrap();
    let mut command = program("unshare");
    command.arg("-nm").arg(own);
    let again = command.args(["--ignored", "--exact", "keepalived::inside", "--nocapture"]).output().unwrap();
    let told =
        format!("{}{}", String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&again.stderr));
    assert!(again.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
#[ignore = "started by the test above, in a namespace of its own"]
fn inside() {
    // Where the configuration has it. Nobody else sees that: the mount is in this test's own namespace.
    run("mount -t tmpfs -o mode=755 nodegate /usr/local/bin");
    std::fs::copy(env!("CARGO_BIN_EXE_nodegate"), "/usr/local/bin/nodegate").unwrap();
    run("ip link set lo up");
    run("ip link add lan type bridge");
    run("ip link set lan up");
    run("ip addr add 10.0.0.1/24 dev lan");
    let cluster = Cluster::with(|builder| {
        builder.listen(([10, 0, 0, 1], 0).into()).nodes(NODES).lease_interval(Duration::from_secs(1))
    });
    let nodes = [Node::start(0, &cluster), Node::start(1, &cluster)];
    let first = until("one node with the address", || holder(&nodes));
    let other = 1 - first;
    assert!(cluster.sim.cordon(NODES[first]));
    until("the address on the other node", || (holder(&nodes) == Some(other)).then_some(()));
    assert!(cluster.sim.uncordon(NODES[first]));
    until("the agent to have seen it", || (nodes[first].agent.logged("to=ready") > 0).then_some(()));
    assert_eq!(holder(&nodes), Some(other), "it does not come back by itself");
    assert!(cluster.sim.cordon(NODES[other]));
    until("the address on the first node", || (holder(&nodes) == Some(first)).then_some(()));
    // Nobody is ready: somebody keeps it all the same.
    assert!(cluster.sim.cordon(NODES[first]));
    until("both to say no", || (nodes[first].agent.logged("to=draining") > 1).then_some(()));
    until("one node with the address", || holder(&nodes));
}
