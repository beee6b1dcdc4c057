//! Waiting for several nodes.

use crate::drain::{Scene, follows};
use crate::lab::{Lab, ready, says};

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
