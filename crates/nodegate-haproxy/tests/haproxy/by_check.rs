//! Drains that HAProxy notices by its own checks, which agents answer with 404. They need no command to
//! HAProxy.

use crate::Row;
use crate::lab::{Lab, node_address, node_name};
use crate::returning::{reaches, reload, spares};
use crate::servers::{count, serve_status};
use crate::traffic::Traffic;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Nodes whose agent answers that they drain.
type Draining = Arc<Mutex<BTreeSet<IpAddr>>>;

/// Starts a lab with three nodes.
async fn lab() -> (Lab, Draining) {
    let (mut lab, draining) = (Lab::new(3).await, Draining::default());
    let seen = draining.clone();
    let status = move |at| if seen.lock().unwrap().contains(&at) { "404 Not Found" } else { "200 OK" };
    lab.check_port = serve_status(lab.checked.clone(), status).await;
    (lab, draining)
}

async fn until_out(lab: &Lab, backend: &str, index: usize) {
    let out = async || lab.status(backend, &node_name(index)).await == "NOLB";
    lab.until(&format!("{backend} does without node {index}"), out).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_takes_nodes_out_and_back_while_the_program_is_not_there() {
    without_the_program().await;
}

pub(crate) async fn without_the_program() -> Row {
    let (mut lab, draining) = lab().await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    // The new server tracks no other server, so it has its own check.
    lab.add_node(3);
    reaches(&lab, port, &lab.served, 3).await;
    lab.program.take().unwrap().kill().await.unwrap();
    let traffic = Traffic::start(port);
    draining.lock().unwrap().extend([0, 3].map(node_address));
    for index in [0, 3] {
        until_out(&lab, &backend, index).await;
        lab.until_spared(index).await;
        assert!(lab.is_admin_ready(&backend, &node_name(index)).await, "{}", lab.log());
    }
    draining.lock().unwrap().clear();
    for index in [0, 3] {
        lab.until_asked(index).await;
    }
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("NOLB, 0 requests, and back: a tracked node, a joined one; {good} requests, 0 lost");
    Row { what: "the program is killed, agents say 404", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_kubelet_is_silent_is_left_to_its_agent() {
    silent_kubelet().await;
}

/// Checks Ready=Unknown: the agent of the node knows if the kubelet is alive (`--on-unknown`), and HAProxy's
/// check asks it.
pub(crate) async fn silent_kubelet() -> Row {
    let (mut lab, out) = lab().await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let traffic = Traffic::start(port);
    for index in 0..3 {
        assert!(lab.sim.set_ready(&node_name(index), "Unknown", "NodeStatusUnknown"));
    }
    // This change arrives after the others in the same watch.
    assert!(lab.sim.cordon(&node_name(2)));
    lab.until("the cordon arrives", async || lab.is_draining(&backend, &node_name(2)).await).await;
    for index in 0..2 {
        assert!(lab.is_admin_ready(&backend, &node_name(index)).await, "{}", lab.log());
        lab.until_asked(index).await;
    }
    // The kubelet of one node is dead, as its agent says.
    out.lock().unwrap().insert(node_address(0));
    until_out(&lab, &backend, 0).await;
    lab.until_spared(0).await;
    assert!(lab.is_admin_ready(&backend, &node_name(0)).await, "{}", lab.log());
    out.lock().unwrap().clear();
    lab.until_asked(0).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result =
        format!("all serve; out and back by its agent's word; a cordon drains; {good} requests, 0 lost");
    Row { what: "Ready=Unknown on all nodes", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_check_has_drained_gets_nothing_over_a_reload_and_comes_back_after_it() {
    over_a_reload().await;
}

pub(crate) async fn over_a_reload() -> Row {
    let (mut lab, draining) = lab().await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    // Node 0 is cordoned in the API, too. Only the agent of node 1 knows about the drain of node 1.
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    draining.lock().unwrap().extend([0, 1].map(node_address));
    let traffic = Traffic::start(port);
    for index in [0, 1] {
        until_out(&lab, &backend, index).await;
        lab.until_spared(index).await;
    }
    let before = [0, 1].map(|index| count(&lab.served, index));
    let other = reload(&lab).await;
    for (port, backend) in [(port, &backend), (other, &format!("nodegate_default_more-{other}_{other}"))] {
        for index in [0, 1] {
            until_out(&lab, backend, index).await;
            spares(&lab, port, index);
        }
    }
    assert_eq!([0, 1].map(|index| count(&lab.served, index)), before, "over the reload\n{}", lab.log());
    // The end of the cordon in the API alone brings no server back.
    assert!(lab.sim.uncordon(&node_name(0)));
    lab.until("it is called ready", async || lab.is_admin_ready(&backend, &node_name(0)).await).await;
    spares(&lab, port, 0);
    draining.lock().unwrap().clear();
    for index in [0, 1] {
        reaches(&lab, port, &lab.served, index).await;
        reaches(&lab, other, &lab.served, index).await;
    }
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("0 requests over a reload, and back at the first 200; {good} requests, 0 lost");
    Row { what: "agents say 404, one of a cordon, a reload", result }
}
