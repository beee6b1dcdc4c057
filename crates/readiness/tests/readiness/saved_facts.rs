//! Tests of the facts that an agent takes over from the previous one.

use crate::scenario::{Scenario, WALL, at, node, taint};
use nodegate_agent_api::{FACTS_FORMAT, Predecessor, Status};
use nodegate_agent_client::sentence;
use nodegate_readiness::{LastFacts, Node, NodeFacts, OnStale, Policy, UnreachableTaint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

fn wall(seconds: u64) -> SystemTime {
    WALL + Duration::from_hours(24) + Duration::from_secs(seconds)
}

fn predecessor() -> Scenario {
    let scenario = Scenario::ready();
    scenario.board.set_node(node(true), at(1), WALL);
    scenario.board.prove(at(1));
    scenario
}

fn saved(scenario: &Scenario, second: u64) -> Option<LastFacts> {
    let json = serde_json::to_vec(&scenario.status(second)).unwrap();
    Predecessor::parse(&json, "n1", wall(0)).unwrap().facts
}

fn successor(on_stale: OnStale, last: LastFacts) -> Scenario {
    let scenario = Scenario::begin(Policy { on_stale, ..Policy::default() }, &["node_ready"]);
    assert!(scenario.board.take_over(last, at(1), WALL));
    scenario.board.open(at(1), WALL);
    scenario
}

fn caveat(scenario: &Scenario, second: u64) -> String {
    sentence::caveat(&scenario.status(second)).unwrap()
}

#[test]
fn facts_taken_over_are_stale_and_count_as_set() {
    let last = saved(&predecessor(), 61).unwrap();
    assert_eq!((last.age, &last.node), (Duration::from_mins(1), &node(true)));
    for (on_stale, status, then) in [
        (OnStale::Ready, 200, "fails open"),
        (OnStale::KeepDrain, 503, "holds the last known drain"),
        (OnStale::NotReady, 503, "fails closed"),
    ] {
        let scenario = successor(on_stale, last.clone());
        assert_eq!(scenario.ask("", 1).status, status, "{on_stale}");
        assert!(scenario.text("", 1).contains(r#""stale":true"#));
        assert_eq!(scenario.ask("", 1).fails_open, on_stale == OnStale::Ready, "{on_stale}");
        let known = "the API server was last heard 3 min ago, by the agent before this one; before that the node was \
                     Draining: cordoned (Unschedulable); the answer ";
        assert_eq!(caveat(&scenario, 121), format!("{known}{then}"));
        assert_eq!(scenario.verdicts(), []);
    }
}

/// A chain of agents is replaced in an outage.
#[test]
fn facts_taken_over_are_handed_on_with_their_date() {
    let first = saved(&predecessor(), 61).unwrap();
    let second = successor(OnStale::KeepDrain, first);
    let last = saved(&second, 101).unwrap();
    assert_eq!((last.age, last.node), (Duration::from_secs(160), node(true)));
}

#[test]
fn own_facts_replace_those_taken_over() {
    let last = || saved(&predecessor(), 61).unwrap();
    let scenario = successor(OnStale::KeepDrain, last());
    scenario.board.set_node(node(false), at(2), WALL);
    assert!(scenario.text("", 2).contains(r#""stale":true"#), "no proof yet");
    scenario.board.prove(at(2));
    assert_eq!(scenario.ask("", 2).status, 200);
    let status = scenario.status(3);
    assert_eq!((status.cache.age_ms, status.cache.taken_over), (Some(1000), false));
    assert!(!scenario.board.take_over(last(), at(3), WALL), "something is known");
    assert_eq!(scenario.ask("", 3).status, 200);
    // The Node is reported at the moment of the takeover.
    let heard = Scenario::begin(Policy::default(), &["node_ready"]);
    heard.board.set_node(Node::Absent, at(1), WALL);
    assert!(!heard.board.take_over(last(), at(1), WALL));
}

#[test]
fn an_agent_without_facts_hands_none_on() {
    let blank = Scenario::begin(Policy::default(), &["node_ready"]);
    assert_eq!(saved(&blank, 1), None);
    let gone = Scenario::ready();
    gone.board.set_node(Node::Absent, at(0), WALL);
    let last = saved(&gone, 1).unwrap();
    let caveat = caveat(&successor(OnStale::Ready, last), 1);
    assert!(caveat.contains("NotReady: the cluster has no Node of this name"), "{caveat}");
}

fn written() -> Value {
    let mut file = serde_json::to_value(predecessor().status(61)).unwrap();
    file["written_at_unix_ms"] = json!(24 * 3600 * 1000);
    file
}

fn read(value: &Value, second: u64) -> Result<Predecessor, String> {
    Predecessor::parse(value.to_string().as_bytes(), "n1", wall(second))
}

fn facts(value: &Value, second: u64) -> LastFacts {
    read(value, second).unwrap().facts.unwrap()
}

#[test]
fn a_file_grows_older_and_a_malformed_one_is_refused_and_so_are_facts_of_another_form() {
    assert_eq!([0, 3600].map(|second| facts(&written(), second).age), [1, 61].map(Duration::from_mins));
    let with = |key: &str, value: Value| {
        let mut file = written();
        file[key] = value;
        file
    };
    let day = 24 * 60;
    let at = |minutes: u64| json!(minutes * 60_000);
    let other = format!("its facts are in form 3, and this version reads form {FACTS_FORMAT}");
    for (key, value, why) in [
        ("facts_format", json!(3), other.as_str()),
        ("facts", json!({"taints": 7}), "facts: not what an agent writes"),
        ("written_at_unix_ms", at(day + 125), "it was written 2 h in the future"),
    ] {
        let found = read(&with(key, value), 0).unwrap();
        assert!(
            found.facts.is_none() && found.not_taken.as_ref().unwrap().starts_with(why),
            "{:?}",
            found.not_taken
        );
    }
    let found = read(&with("services", json!("x")), 0).unwrap();
    assert!(found.facts.is_some(), "each item is left by itself");
    assert_eq!(found.not_taken.as_deref(), Some("services: not what an agent writes"));
    let error = read(&with("node", json!("n2")), 0).unwrap_err();
    assert_eq!(error, "it is about the node \"n2\"");
    for garbage in ["", "{", "[]", "7", "null", "\u{0}"] {
        let error = Predecessor::parse(garbage.as_bytes(), "n1", WALL).unwrap_err();
        assert!(error.starts_with("it is not what an agent writes"), "{garbage:?}: {error}");
    }
    assert_eq!(facts(&with("written_at_unix_ms", at(day + 5)), 0).age, Duration::from_mins(1));
    for extreme in [0, u64::MAX] {
        let mut file = with("written_at_unix_ms", extreme.into());
        file["cache"]["age_ms"] = json!(u64::MAX);
        let _ = read(&file, 0);
    }
}

/// A failure means that another agent could misread the facts of this one, or cannot read them. Then
/// `FACTS_FORMAT` must grow.
#[test]
fn the_form_is_the_one_that_its_number_names() {
    let expected: Value = serde_json::from_str(include_str!("facts_format_2.json")).unwrap();
    let Node::Present(facts) = node(true) else { unreachable!() };
    let labels = [("example.com/pool", "a"), ("example.com/spare", "")];
    let facts = NodeFacts {
        taints: [taint("example.com/down=soon:NoSchedule")].into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        internal_ips: ["10.0.0.7", "fd00::7"].map(|address| address.parse().unwrap()).into(),
        unreachable: Some(UnreachableTaint { added_unix_ms: Some(7) }),
        ..facts
    };
    // Values that no signal names are left out.
    let drain_on =
        "unschedulable,taint:example.com/down=soon:NoSchedule,label:example.com/pool=a".parse().unwrap();
    let scenario = Scenario::begin(Policy { drain_on, ..Policy::default() }, &["node_ready"]);
    scenario.board.set_node(Node::Present(facts.clone()), at(1), WALL);
    scenario.board.prove(at(1));
    let status = serde_json::to_value(scenario.status(61)).unwrap();
    let written: serde_json::Map<_, _> =
        expected.as_object().unwrap().keys().map(|key| (key.clone(), status[key].clone())).collect();
    assert_eq!(Value::Object(written), expected);
    assert_eq!(read(&status, 0).unwrap().facts.unwrap().node, Node::Present(facts));
}

proptest! {
    /// A file that a disk has corrupted is either parsed or refused.
    #[test]
    fn nothing_that_was_garbled_does_harm(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = serde_json::to_vec(&written()).unwrap();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = Predecessor::parse(&bytes, "n1", wall(0));
    }
}

#[test]
fn services_are_taken_over_by_their_names() {
    let board = |services: &[&str]| {
        use nodegate_readiness::{Board, Catalog};
        let services = services.iter().map(|name| name.parse().unwrap()).collect();
        let catalog = Catalog::default().with_services(services);
        let default = [catalog.find("node_ready").unwrap()];
        Board::new(Some("n1".to_owned()), Policy::default(), catalog, &default)
    };
    let before = board(&["a/none", "a/two", "a/unheard"]);
    before.set_node(node(false), at(0), WALL);
    before.prove(at(0));
    before.set_service(0, 0, at(0), WALL);
    before.set_service(1, 2, at(0), WALL);
    let json = serde_json::to_vec(&before.read(at(1), WALL, Status::of)).unwrap();
    let after = board(&["a/new", "a/two", "a/unheard", "a/none"]);
    assert!(after.take_over(Predecessor::parse(&json, "n1", WALL).unwrap().facts.unwrap(), at(1), WALL));
    let counts = after.services(at(1)).into_iter().map(|view| view.service.local_endpoints);
    assert_eq!(counts.collect::<Vec<_>>(), [None, Some(2), None, Some(0)]);
}
