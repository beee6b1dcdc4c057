//! Tests of watched Services on the board. Time is a number here; nothing waits.

use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Lookup, Moment, Node, NodeFacts, OnStale, Policy, Reply,
};
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

const WALL: SystemTime = SystemTime::UNIX_EPOCH;
const CHECK: &str = "check=service:ingress/web";

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(seconds))
}

struct Scenario(Board);

impl Scenario {
    /// Returns a board that has known its Node since second 0, and has no facts of the Service.
    fn begin(on_stale: OnStale) -> Self {
        let catalog = Catalog::default().with_services(vec!["ingress/web".parse().unwrap()]);
        let default = [catalog.find("node_ready").unwrap()];
        let policy = Policy { on_stale, ..Policy::default() };
        let board = Board::new(Some("n1".to_owned()), policy, catalog, &default, Box::new(|_| {}));
        let kind = "Ready".to_owned();
        let ready = Condition { kind, status: ConditionStatus::True, reason: String::new() };
        let facts = NodeFacts { conditions: vec![ready], ..NodeFacts::default() };
        board.set_node(Node::Present(facts), at(0), WALL);
        board.prove(at(0));
        board.open(at(0), WALL);
        Self(board)
    }

    fn told(&self, local_endpoints: usize, second: u64) {
        self.0.set_service(0, local_endpoints, at(second), WALL);
        self.0.prove_services(&[0], at(second), at(second), WALL);
    }

    fn ask(&self, raw: &str, second: u64) -> Reply {
        match self.0.lookup(raw, at(second)) {
            Lookup::Hit(reply) => reply,
            Lookup::Miss(query) => self.0.answer(raw, &query, at(second)),
            Lookup::Bad(bad) => Reply::error(400, &bad),
        }
    }

    fn is_hit(&self, raw: &str, second: u64) -> bool {
        matches!(self.0.lookup(raw, at(second)), Lookup::Hit(_))
    }

    fn count(&self, second: u64) -> usize {
        self.0.service_view("ingress", "web", at(second)).unwrap().local_endpoints
    }
}

fn says_stale(reply: &Reply) -> bool {
    String::from_utf8_lossy(&reply.body).contains(r#""stale":true"#)
}

#[test]
fn the_check_follows_the_endpoints() {
    let scenario = Scenario::begin(OnStale::Ready);
    scenario.told(0, 0);
    let none = scenario.ask(CHECK, 1);
    assert_eq!(none.status, 503);
    assert!(String::from_utf8_lossy(&none.body).contains(r#""reason":"NoLocalEndpoints""#));
    scenario.told(2, 2);
    assert!(scenario.is_hit(CHECK, 2), "rendered when it changed, not when asked");
    assert_eq!((scenario.ask(CHECK, 2).status, scenario.count(2)), (200, 2));
    let returning = |second| scenario.0.service_view("ingress", "web", at(second)).unwrap().is_returning;
    assert_eq!([2, 3, 4].map(returning), [true, true, false], "kube-proxy needs time for its rules");
    scenario.told(1, 5);
    assert!(!returning(5), "kube-proxy has rules for the Service");
    assert_eq!(scenario.0.service_view("ingress", "other", at(2)), None);
}

#[test]
fn the_meaning_of_stale_is_a_setting() {
    let cases = [
        (OnStale::Ready, Some(0), 503, 0),
        (OnStale::Ready, Some(3), 200, 3),
        (OnStale::Ready, None, 200, 1),
        (OnStale::KeepDrain, Some(0), 503, 0),
        (OnStale::KeepDrain, Some(3), 200, 3),
        (OnStale::KeepDrain, None, 200, 1),
        (OnStale::NotReady, Some(0), 503, 0),
        (OnStale::NotReady, Some(3), 503, 0),
        (OnStale::NotReady, None, 503, 0),
    ];
    for (on_stale, known, status, count) in cases {
        let scenario = Scenario::begin(on_stale);
        if let Some(known) = known {
            scenario.told(known, 0);
        }
        let told = (scenario.ask(CHECK, 30).status, scenario.count(30));
        assert_eq!(told, (status, count), "{on_stale}, {known:?} known");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Told(usize),
    ProveNode,
    ProveBoth,
    Ask,
}

proptest! {
    /// Whatever was asked in between, an answer follows from the current facts and their age.
    #[test]
    fn an_answer_never_outlives_its_proof(
        steps in prop::collection::vec((0u64..8, prop_oneof![
            (0usize..3).prop_map(Step::Told), Just(Step::ProveNode), Just(Step::ProveBoth), Just(Step::Ask),
        ]), 1..60)
    ) {
        let scenario = Scenario::begin(OnStale::Ready);
        let (mut now, mut node_proof, mut known, mut proof) = (0, 0, None, None);
        for (wait, step) in steps {
            now += wait;
            match step {
                Step::Told(count) => {
                    scenario.told(count, now);
                    (known, proof) = (Some(count), Some(now));
                }
                Step::ProveNode => {
                    scenario.0.prove(at(now));
                    node_proof = now;
                }
                Step::ProveBoth if known.is_some() => {
                    scenario.0.prove_services(&[0], at(now), at(now), WALL);
                    scenario.0.prove(at(now));
                    (node_proof, proof) = (now, Some(now));
                }
                Step::ProveBoth | Step::Ask => {}
            }
            let stale = now - node_proof > 15 || proof.is_none_or(|proof| now - proof > 15);
            let passes = known != Some(0);
            let reply = scenario.ask(CHECK, now);
            prop_assert_eq!((reply.status == 200, says_stale(&reply), reply.fails_open), (passes, stale, false));
            prop_assert_eq!(says_stale(&scenario.ask("", now)), now - node_proof > 15, "the Node has proof of its own");
            prop_assert_eq!(scenario.count(now), known.unwrap_or(1));
        }
    }
}
