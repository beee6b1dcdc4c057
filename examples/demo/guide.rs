//! The introduction at the start of the demo.

use crate::node::Network;
use crate::screen::Screen;
use crate::{balancer, probe, tour};
use nodegate_testbed::{Scenario, programs};

/// Explains the running programs, the commands to type, and the meaning of the lines below.
pub(crate) fn show(screen: &Screen, cluster: &Scenario, network: Network, tour: bool, with_haproxy: bool) {
    let title = "nodegate demo: a simulated Kubernetes API, three nodes with real agents, pods that serve";
    screen.line(screen.bold(title));
    screen.line(format!("\n  API server  {}", cluster.sim.url()));
    for node in network.nodes() {
        let (name, agent, ingress) = (node.name, node.agent, node.ingress);
        screen
            .line(format!("  {name}    agent http://{agent}/health, ingress {ingress}, two pods behind it"));
    }
    let ([first, second], slow) = (network.balancers(), balancer::SLOW * 2);
    let quick = u128::from(balancer::QUICK) * 2000 / balancer::EVERY.as_millis();
    screen.line(if with_haproxy {
        format!(
            "  HAProxy     lb-1 on {first}, lb-2 on {second}: clients ask {quick} times a second, each on a\n              \
             new connection, and {slow} others fetch large files"
        )
    } else {
        "  HAProxy     none: `make demo ARGS=--haproxy` installs it, and sends traffic through it".to_owned()
    });
    screen.line("");
    if tour {
        let args = tour::AGENT_ARGS.join(" ");
        screen.line(format!("  The tour's agents run with {args}, so that it does not take long."));
    } else {
        commands(screen, cluster, network);
    }
    screen.line(screen.dim(format!(
        "  latency: from the moment the API server stored the change to the first answer that shows it;\n  \
         each agent is asked every {} ms, which is part of it\n",
        probe::EVERY.as_millis()
    )));
    screen.header();
}

fn commands(screen: &Screen, cluster: &Scenario, network: Network) {
    let [node, ..] = network.nodes();
    let plugins = programs::agent().with_file_name("");
    screen.line("Type in a second terminal:\n");
    screen.line(screen.bold(format!("  export KUBECONFIG={}", cluster.admin().kubeconfig().display())));
    screen.line(screen.bold(format!("  export PATH={}:$PATH\n", plugins.display())));
    let (curl, open) =
        (format!("curl -i http://{}/health", node.agent), format!("xdg-open http://{}/", node.agent));
    for (command, what) in [
        ("kubectl nodegate", "what the agents say: the fleet"),
        ("kubectl cordon worker-1", "watch the answer flip below"),
        (&curl, "503, reason Unschedulable"),
        ("kubectl uncordon worker-1", "and back"),
        (
            "kubectl nodegate drain worker-1",
            "the loop closed: acknowledged, evicted, none lost; once 90 s old",
        ),
        ("kubectl nodegate uncordon worker-1", "waits until the balancers know"),
        ("kubectl drain worker-2", "as everybody does it: what is lost is counted with HAProxy"),
        ("kubectl taint node worker-3 node.kubernetes.io/out-of-service=:NoExecute", "- at the end: away"),
        (&open, "the agent's status page"),
    ] {
        screen.line(format!("  {command:<56}  {}", screen.dim(format!("# {what}"))));
    }
    screen.line("\nCtrl-C ends it all; `make demo ARGS=--tour` plays a script.\n");
}
