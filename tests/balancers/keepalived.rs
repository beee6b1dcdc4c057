//! Debian's keepalived: an address that stays with a node that is ready. Each node is a network namespace with
//! keepalived and an agent in it, and so is the network between them, with the API server.

use crate::site::{HTTP_PORT, NODES, documented};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::signal;
use nodegate_testbed::programs::{self, system};
use nodegate_testbed::{Agent, Cluster, needs_root, until};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");
const ADDRESS: &str = "10.0.0.10/24";

struct Node {
    keepalived: Child,
    agent: Agent,
    namespace: Namespace,
}

impl Node {
    fn start(index: usize, lan: &Namespace, cluster: &Cluster) -> Self {
        let namespace = Namespace::new(NODES[index]);
        lan.run(&format!("ip link add n{index} type veth peer name eth0 netns {}", namespace.name()));
        lan.run(&format!("ip link set n{index} master lan up"));
        namespace.run(&format!("ip addr add 10.0.0.1{}/24 dev eth0", index + 1));
        namespace.run("ip link set eth0 up");
        Self {
            keepalived: keepalived(&namespace, index, cluster.dir.path()),
            agent: agent(&namespace, index, cluster),
            namespace,
        }
    }

    fn holds_the_address(&self) -> bool {
        self.namespace.run("ip -4 addr show dev eth0").contains(ADDRESS)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Asked, it ends its children, too.
        signal(self.keepalived.id(), "TERM");
        let _ = self.keepalived.wait();
    }
}

/// The program is where the configuration has it. Nobody else sees that: what is mounted in a namespace stays there.
const WITH_NODEGATE: &str = "mount -t tmpfs -o mode=755 nodegate /usr/local/bin
    cp \"$0\" /usr/local/bin/nodegate
    exec keepalived -n -l -P \"$@\"";

fn keepalived(namespace: &Namespace, index: usize, dir: &Path) -> Child {
    let file = |name: &str| dir.join(format!("{name}-{index}"));
    let mut command = namespace.command("sh");
    command.args(["-ec", WITH_NODEGATE]).arg(programs::agent());
    // By curl on one, by the agent's own program on the other.
    let name = ["vrrp.conf", "vrrp-status.conf"][index % 2];
    command.arg("-f").arg(format!("{DOCS}/keepalived/{name}"));
    command.arg("-p").arg(file("pid")).arg("-r").arg(file("vrrp"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn agent(namespace: &Namespace, index: usize, cluster: &Cluster) -> Agent {
    let mut command = namespace.command(programs::agent());
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
    needs_root("a keepalived that may become the scripts' user");
    for name in documented("keepalived") {
        let checked = system("keepalived").args(["-t", "-f", &format!("{DOCS}/{name}")]).output();
        let checked = checked.expect("keepalived is needed: hack/install-tools installs it");
        // Content, 2.2.7 ends itself with SIGTERM; else it says why, with an exit code.
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(told.is_empty() && matches!(checked.status.code(), None | Some(0)), "{name}: {told}");
    }
}

#[test]
fn the_address_goes_to_a_node_that_is_ready() {
    let lan = Namespace::new("lan");
    lan.run("ip link add lan type bridge");
    lan.run("ip link set lan up");
    lan.run("ip addr add 10.0.0.1/24 dev lan");
    let cluster = lan.act(|| {
        Cluster::with(|builder| {
            builder.listen(([10, 0, 0, 1], 0).into()).nodes(NODES).lease_interval(Duration::from_secs(1))
        })
    });
    let nodes = [0, 1].map(|index| Node::start(index, &lan, &cluster));
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
