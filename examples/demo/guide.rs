//! The introduction at the start of the demo.

use crate::agent::Launcher;
use crate::cluster::Cluster;
use crate::haproxy;
use crate::kubectl::{self, Kubectl};
use crate::node::Network;
use crate::probe;
use crate::screen::Screen;
use crate::tour;
use crate::traffic::Traffic;

/// Explains the running programs, the commands to type, and the meaning of the lines below.
pub(crate) async fn show(
    screen: &Screen,
    cluster: &Cluster,
    network: Network,
    tour: bool,
    with_haproxy: bool,
) {
    let title =
        "nodegate demo: a simulated Kubernetes API, three nodes, a real agent on each, pods that serve";
    screen.line(screen.bold(title));
    screen.line("");
    screen.line(format!("  API server  {}", cluster.sim.url()));
    for node in network.nodes() {
        let (name, agent, ingress) = (node.name, node.agent(), node.ingress());
        screen
            .line(format!("  {name}    agent http://{agent}/health, ingress {ingress}, two pods behind it"));
    }
    balancers(screen, network, with_haproxy);
    screen.line("");
    if tour {
        let args = tour::AGENT_ARGS.join(" ");
        screen.line(format!("  The tour's agents run with {args}, so that it does not take long."));
    } else {
        commands(screen, cluster, network, with_haproxy);
        if Kubectl::find().await.is_err() {
            screen.line(format!("  kubectl was not found: {}", kubectl::INSTALL));
            screen.line("");
        }
    }
    let latency =
        "  latency: from the moment the API server stored the change to the first answer that shows it;";
    let waiting = format!("  each agent is asked every {} ms, which is part of it", probe::EVERY.as_millis());
    screen.line(screen.dim(latency));
    screen.line(screen.dim(waiting));
    screen.line("");
    screen.header();
}

fn balancers(screen: &Screen, network: Network, with_haproxy: bool) {
    if !with_haproxy {
        screen
            .line("  HAProxy     none: `make demo ARGS=--haproxy` installs it, and sends traffic through it");
        return;
    }
    let addresses = haproxy::addresses(network);
    let [first, second] = addresses;
    let (quick, slow) = Traffic::load(addresses.len());
    screen.line(format!(
        "  HAProxy     lb-1 on {first}, lb-2 on {second}: clients ask {quick} times a second, each on a"
    ));
    screen.line(format!("              new connection, and {slow} others fetch large files"));
}

fn commands(screen: &Screen, cluster: &Cluster, network: Network, with_haproxy: bool) {
    let [node, ..] = network.nodes();
    screen.line("Type in a second terminal:");
    screen.line("");
    screen.line(screen.bold(format!("  export KUBECONFIG={}", cluster.kubeconfig().display())));
    if let Some(directory) = Launcher::find().ok().and_then(|launcher| launcher.directory()) {
        screen.line(screen.bold(format!("  export PATH={}:$PATH", directory.display())));
    }
    screen.line("");
    let health = format!("curl -i http://{}/health", node.agent());
    let page = format!("xdg-open http://{}/", node.agent());
    let drained = "the loop closed: told, evicted, none lost; once 90 s old";
    let plain = if with_haproxy {
        "as everybody does it: count what is lost"
    } else {
        "cordons first, evicts at once"
    };
    let lines = [
        ("kubectl get nodes -o wide; kubectl get pods -o wide", "what the API server says"),
        ("kubectl nodegate", "what the agents say: the fleet"),
        ("kubectl cordon worker-1", "watch the answer flip below"),
        (health.as_str(), "503, reason Unschedulable"),
        ("kubectl uncordon worker-1", "and back"),
        ("kubectl nodegate drain worker-1", drained),
        ("kubectl nodegate uncordon worker-1", "waits until the balancers know"),
        ("kubectl drain worker-2 --ignore-daemonsets", plain),
        (
            "kubectl taint node worker-3 node.kubernetes.io/out-of-service=:NoExecute",
            "with - at the end: away",
        ),
        (page.as_str(), "the agent's status page"),
    ];
    for (command, what) in lines {
        screen.line(format!("  {command:<56}  {}", screen.dim(format!("# {what}"))));
    }
    screen.line("");
    screen.line("Ctrl-C ends it all; `make demo ARGS=--tour` plays a script.");
    screen.line("");
}
