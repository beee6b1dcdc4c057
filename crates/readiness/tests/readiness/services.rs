//! Tests of watched Services on the board. Time is a number here; nothing waits.

use crate::scenario::{Scenario, WALL, at, node};
use nodegate_readiness::{Lookup, OnStale, Policy, Reply};
use proptest::prelude::*;

const CHECK: &str = "check=service:ingress/web";

fn tell(scenario: &Scenario, local_endpoints: usize, second: u64) {
    scenario.board.set_service(0, local_endpoints, at(second), WALL);
    scenario.board.prove_services(&[0], at(second), at(second), WALL);
}

fn endpoints(scenario: &Scenario, second: u64) -> usize {
    let view = scenario.board.service("ingress/web", at(second)).unwrap();
    scenario.board.policy().local_endpoints(view.service.local_endpoints, view.is_stale)
}

fn says_stale(reply: &Reply) -> bool {
    String::from_utf8_lossy(&reply.body).contains(r#""stale":true"#)
}

#[test]
fn the_check_follows_the_endpoints() {
    let scenario = Scenario::ready();
    tell(&scenario, 0, 0);
    let none = scenario.ask(CHECK, 1);
    assert_eq!(none.status, 503);
    assert!(String::from_utf8_lossy(&none.body).contains(r#""reason":"NoLocalEndpoints""#));
    tell(&scenario, 2, 2);
    let rendered = matches!(scenario.board.lookup(CHECK, at(2)), Lookup::Hit(_));
    assert!(rendered, "when it changed, not when asked");
    assert_eq!((scenario.ask(CHECK, 2).status, endpoints(&scenario, 2)), (200, 2));
    let service = |second| scenario.board.service("ingress/web", at(second)).unwrap().service;
    let returning = |second| service(second).is_returning(at(second));
    assert_eq!([2, 3, 4].map(returning), [true, true, false], "kube-proxy needs time for its rules");
    tell(&scenario, 1, 5);
    assert!(!returning(5), "kube-proxy has rules for the Service");
    assert_eq!(scenario.board.service("ingress/other", at(2)), None);
}

#[test]
fn the_meaning_of_stale_is_a_setting() {
    for on_stale in [OnStale::Ready, OnStale::KeepDrain, OnStale::NotReady] {
        for (known, open) in [(Some(0), (503, 0)), (Some(3), (200, 3)), (None, (200, 1))] {
            let scenario = Scenario::with(Policy { on_stale, ..Policy::default() }, node(false));
            if let Some(known) = known {
                tell(&scenario, known, 0);
            }
            let answered = (scenario.ask(CHECK, 30).status, endpoints(&scenario, 30));
            let expected = if on_stale == OnStale::NotReady { (503, 0) } else { open };
            assert_eq!(answered, expected, "{on_stale}, {known:?} known");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Endpoints(usize),
    ProveNode,
    ProveBoth,
    Ask,
}

proptest! {
    /// Whatever was asked in between, an answer follows from the current facts and their age.
    #[test]
    fn an_answer_never_outlives_its_proof(
        steps in prop::collection::vec((0u64..8, prop_oneof![
            (0usize..3).prop_map(Step::Endpoints), Just(Step::ProveNode), Just(Step::ProveBoth), Just(Step::Ask),
        ]), 1..60)
    ) {
        let scenario = Scenario::ready();
        let (mut now, mut node_proof, mut known, mut proof) = (0, 0, None, None);
        for (wait, step) in steps {
            now += wait;
            match step {
                Step::Endpoints(count) => {
                    tell(&scenario, count, now);
                    (known, proof) = (Some(count), Some(now));
                }
                Step::ProveNode => {
                    scenario.board.prove(at(now));
                    node_proof = now;
                }
                Step::ProveBoth if known.is_some() => {
                    scenario.board.prove_services(&[0], at(now), at(now), WALL);
                    scenario.board.prove(at(now));
                    (node_proof, proof) = (now, Some(now));
                }
                Step::ProveBoth | Step::Ask => {}
            }
            let stale = now - node_proof > 15 || proof.is_none_or(|proof| now - proof > 15);
            let passes = known != Some(0);
            let reply = scenario.ask(CHECK, now);
            prop_assert_eq!((reply.status == 200, says_stale(&reply), reply.fails_open), (passes, stale, false));
            prop_assert_eq!(says_stale(&scenario.ask("", now)), now - node_proof > 15, "the Node has proof of its own");
            prop_assert_eq!(endpoints(&scenario, now), known.unwrap_or(1));
        }
    }
}
