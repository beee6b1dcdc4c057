//! Waiting for several nodes.

use crate::drain::{DrainSetup, RESPONSIVE, are_in_order, cluster, follows, steps};
use nodegate_kube_sim::{Effect, FaultScope};

#[test]
fn several_nodes_are_waited_for_concurrently() {
    let scenario = cluster(RESPONSIVE, &["a", "b", "c"]);
    for (node, unresponsive) in [("a", 0), ("b", 0), ("c", 1)] {
        scenario.crowd.now(node, follows(&scenario.sim, node, DrainSetup { unresponsive, ..RESPONSIVE }));
        scenario.sim.cordon(node);
    }
    let both = scenario.run(&["wait", "a", "b"]);
    both.has(0, &[]);
    for node in ["a", "b"] {
        are_in_order(&steps(&both, node), &["acknowledged after "]);
    }
    let wait = |args: &[&str]| scenario.run(&[&["wait", "a"], args].concat());
    wait(&["c", "--timeout=1s"]).has(1, &["not acknowledged after 1 s: 10.0.0.101 /health"]);
    wait(&["--for=released"]).has(3, &["all acknowledged, but not known whether released"]);
    scenario.sim.uncordon("a");
    wait(&["--for", "ready"]).has(0, &["ready after "]);
}

#[test]
fn a_node_that_cant_be_uncordoned_stops_no_other() {
    let scenario = cluster(RESPONSIVE, &["a", "b"]);
    scenario.sim.cordon("a");
    let patches = FaultScope::all().resources(&["nodes"]).verbs(&["patch"]);
    scenario.sim.faults().add(Effect::Forbidden.on(patches));
    let said = scenario.run(&["uncordon", "a", "b"]);
    said.has(3, &[]);
    are_in_order(&steps(&said, "a"), &["can't uncordon a: "]);
    are_in_order(&steps(&said, "b"), &["was not cordoned", "ready after "]);
}
