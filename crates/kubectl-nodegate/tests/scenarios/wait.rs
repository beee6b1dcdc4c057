//! Waiting for several nodes.

use crate::drain::{Scene, follows};
use crate::lab::{Lab, ready, says};
use nodegate_kube_sim::{Effect, FaultScope};

#[test]
fn several_nodes_are_waited_for_concurrently() {
    let lab = Lab::new([("a", says(&ready("a"))), ("b", says(&ready("b"))), ("c", says(&ready("c")))]);
    for (node, unresponsive) in [("a", 0), ("b", 0), ("c", 1)] {
        lab.crowd
            .now(node, follows(&lab.sim, node, Scene { acknowledged: 2, unresponsive, ..Scene::default() }));
        lab.sim.cordon(node);
    }
    let both = lab.run(&["wait", "a", "b"]);
    assert_eq!(both.code, Some(0), "{both:#?}");
    let acknowledged = |node: &str| {
        both.out.lines().any(|line| line.starts_with(node) && line.contains("s  acknowledged after "))
    };
    assert!(acknowledged("a") && acknowledged("b"), "{both:#?}");
    let all = lab.run(&["wait", "a", "c", "--timeout=1s"]);
    assert_eq!(all.code, Some(1), "{all:#?}");
    assert!(all.out.contains("not acknowledged after 1 s: 10.0.0.101 /health"), "{all:#?}");
    let released = lab.run(&["wait", "a", "--for=released"]);
    assert!(
        released.code == Some(3) && released.out.contains("all acknowledged, but not known whether released"),
        "{released:#?}"
    );
    lab.sim.uncordon("a");
    let back = lab.run(&["wait", "a", "--for", "ready"]);
    assert!(back.code == Some(0) && back.out.contains("ready after "), "{back:#?}");
}

#[test]
fn a_node_that_cant_be_uncordoned_stops_no_other() {
    let lab = Lab::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    for node in ["a", "b"] {
        lab.crowd.now(node, follows(&lab.sim, node, Scene { acknowledged: 1, ..Scene::default() }));
    }
    lab.sim.cordon("a");
    lab.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["nodes"]).verbs(&["patch"])));
    let said = lab.run(&["uncordon", "a", "b"]);
    let line =
        |node: &str, text: &str| said.out.lines().any(|line| line.starts_with(node) && line.contains(text));
    assert!(said.code == Some(3) && line("a", "can't uncordon a: "), "{said:#?}");
    assert!(line("b", "was not cordoned") && line("b", "ready after "), "{said:#?}");
}
