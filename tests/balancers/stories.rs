//! Every way of asking, under traffic.

use crate::event::{Event, Outcome};
use crate::mode::Mode;
use crate::nodes::Nodes;
use crate::traffic::traffic;
use nodegate_testbed::haproxy::Haproxy;

fn play(mode: Mode, events: &[Event], mut told: impl FnMut(Event, &Outcome)) {
    let mut nodes = Nodes::start();
    let _haproxy = Haproxy::start(&nodes.site.configuration(mode.configuration()));
    let mut traffic = traffic(nodes.site.frontend());
    for &event in events {
        let outcome = event.play(&mut nodes, &traffic);
        told(event, &outcome);
    }
    traffic.stop();
}

/// The promise: whatever happens, no client notices, and an outage of the API empties no pool. What broke it.
fn broken(mode: Mode, event: Event, outcome: &Outcome) -> Option<String> {
    let must_stay = event == Event::ApiOutage;
    let kept =
        outcome.failures.is_empty() && outcome.existing_works && !(must_stay && outcome.left_after.is_some());
    let what = format!("{}, {}: {outcome}: {:?}", mode.name(), event.name(), outcome.failures);
    (!kept).then_some(what)
}

fn cordon_under_load(mode: Mode) {
    play(mode, &[Event::Cordon], |event, outcome| {
        eprintln!("{}, {}: {outcome}", mode.name(), event.name());
        assert_eq!(broken(mode, event, outcome), None);
    });
}

#[test]
fn cordon_with_httpchk_get() {
    cordon_under_load(Mode::Get);
}

#[test]
fn cordon_with_plain_httpchk() {
    cordon_under_load(Mode::Options);
}

#[test]
fn cordon_with_expect() {
    cordon_under_load(Mode::Expect);
}

#[test]
fn cordon_with_disable_on_404() {
    cordon_under_load(Mode::DisableOn404);
}

#[test]
fn cordon_with_agent_check() {
    cordon_under_load(Mode::AgentCheck);
}

#[test]
#[ignore = "takes minutes: make lb-test"]
fn table() {
    println!(
        "failed of all requests · from the event to the last new connection on the node · a connection open on it"
    );
    println!();
    println!("| HAProxy | {} |", Event::ALL.map(Event::name).join(" | "));
    println!("|---|{}", "---|".repeat(Event::ALL.len()));
    let mut all_broken = Vec::new();
    for mode in Mode::ALL {
        let mut cells = Vec::new();
        play(mode, &Event::ALL, |event, outcome| {
            eprintln!("  {}, {}: {outcome}", mode.name(), event.name());
            cells.push(outcome.to_string());
            all_broken.extend(broken(mode, event, outcome));
        });
        println!("| `{}` | {} |", mode.name(), cells.join(" | "));
    }
    assert!(all_broken.is_empty(), "{all_broken:#?}");
}
