//! What a person reads before anything happens.

use crate::cluster::Cluster;
use crate::haproxy;
use crate::kubectl::{self, Kubectl};
use crate::node::DemoNode;
use crate::probe;
use crate::screen::Screen;
use crate::tour;
use crate::traffic::Traffic;

/// Says what runs, what to type, and what the lines below will mean.
pub(crate) async fn show(
    screen: &Screen,
    cluster: &Cluster,
    nodes: &[DemoNode],
    tour: bool,
    with_haproxy: bool,
) {
    screen.line(screen.bold("nodegate demo: a simulated Kubernetes API, three nodes, a real agent for each"));
    screen.line("");
    screen.line(format!("  API server  {}", cluster.sim.url()));
    for node in nodes {
        screen.line(format!("  {}    agent on http://localhost:{}/health", node.name, node.port));
    }
    if with_haproxy {
        screen.line(format!(
            "  HAProxy     http://{} with {} requests a second, each on a new connection",
            haproxy::address(nodes),
            Traffic::rate()
        ));
    }
    screen.line("");
    if tour {
        screen.line(format!(
            "  The tour's agents run with {}, so that it fits a minute.",
            tour::AGENT_ARGS.join(" ")
        ));
    } else {
        commands(screen, cluster, nodes);
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

fn commands(screen: &Screen, cluster: &Cluster, nodes: &[DemoNode]) {
    let port = nodes.first().map_or(0, |node| node.port);
    screen.line("Type in a second terminal:");
    screen.line("");
    screen.line(screen.bold(format!("  export KUBECONFIG={}", cluster.kubeconfig().display())));
    let lines = [
        ("kubectl get nodes", "what the API server says"),
        ("kubectl cordon worker-1", "watch the answer flip below"),
        (&format!("curl -i localhost:{port}/health"), "503, reason Unschedulable"),
        ("kubectl uncordon worker-1", "and back"),
        ("kubectl drain worker-2 --ignore-daemonsets", "cordons first; uncordon it afterwards"),
        (
            "kubectl taint node worker-3 node.kubernetes.io/out-of-service=:NoExecute",
            "the same with - at the end: away",
        ),
        (&format!("xdg-open http://localhost:{port}/"), "the agent's status page"),
    ];
    for (command, what) in lines {
        screen.line(format!("  {command:<42}  {}", screen.dim(format!("# {what}"))));
    }
    screen.line("");
    screen.line("Ctrl-C ends it all; `make demo ARGS=--tour` plays a scripted minute, ARGS=--haproxy adds a balancer.");
    screen.line("");
}
