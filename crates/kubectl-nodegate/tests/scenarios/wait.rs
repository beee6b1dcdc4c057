//! Waiting for several nodes.

use crate::drain::{RESPONSIVE, Scene, are_in_order, cluster, follows, steps};
use nodegate_kube_sim::{Effect, FaultScope};

#[test]
fn several_nodes_are_waited_for_concurrently() {
    let lab = cluster(RESPONSIVE, &["a", "b", "c"]);
    for (node, unresponsive) in [("a", 0), ("b", 0), ("c", 1)] {
        lab.crowd.now(node, follows(&lab.sim, node, Scene { unresponsive, ..RESPONSIVE }));
        lab.sim.cordon(node);
    }
    let both = lab.run(&["wait", "a", "b"]);
    both.has(0, &[]);
    for node in ["a", "b"] {
        are_in_order(&steps(&both, node), &["acknowledged after "]);
    }
    lab.run(&["wait", "a", "c", "--timeout=1s"]).has(1, &["not acknowledged after 1 s: 10.0.0.101 /health"]);
    lab.run(&["wait", "a", "--for=released"]).has(3, &["all acknowledged, but not known whether released"]);
    lab.sim.uncordon("a");
    lab.run(&["wait", "a", "--for", "ready"]).has(0, &["ready after "]);
}

#[test]
fn a_node_that_cant_be_uncordoned_stops_no_other() {
    let lab = cluster(RESPONSIVE, &["a", "b"]);
    lab.sim.cordon("a");
    lab.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["nodes"]).verbs(&["patch"])));
    let said = lab.run(&["uncordon", "a", "b"]);
    said.has(3, &[]);
    are_in_order(&steps(&said, "a"), &["can't uncordon a: "]);
    are_in_order(&steps(&said, "b"), &["was not cordoned", "ready after "]);
}
