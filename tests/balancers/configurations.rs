//! Every balancer with every documented health check, under traffic.

use crate::balancer::{ROWS, Row};
use crate::event::Event;
use crate::nodes::NODES;
use crate::scenario::{Outcome, Scenario};
use crate::table::{self, Cell, Cells};
use nodegate_readiness::EXCLUDE_LABEL;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Returns the broken promise: in no event does a client notice anything, and no outage of the API empties a pool.
fn broken(row: &Row, event: Event, outcome: &Outcome) -> Option<String> {
    let must_stay = matches!(event, Event::ApiOutage | Event::Rollout);
    let left = outcome.left_after.is_some();
    let held =
        outcome.failures.is_empty() && outcome.kept && !(must_stay && left) && (left || !event.must_leave());
    let what = format!("{}, {}: {outcome:?}", row.title(), event.name());
    (!held && row.reason(event).is_none()).then_some(what)
}

/// Plays a cordon with one documented configuration, and returns the broken promise.
fn cordon(file: &str) -> Option<String> {
    let row = Row::with(file);
    if !row.is_there() {
        println!("not played: {}: hack/install fetches it", row.title());
        return None;
    }
    let outcome = Scenario::set(row).play(Event::Cordon, Duration::ZERO);
    let stays = outcome.left_after.is_none().then(|| format!("{file}: {outcome:?}"));
    let broken = broken(&row, Event::Cordon, &outcome).or(stays);
    println!("{file}, cordon: {}", Cell(vec![outcome]));
    broken
}

#[test]
fn every_documented_configuration_follows_a_cordon() {
    let files: BTreeSet<_> = ROWS.iter().map(|row| row.file).filter(|file| file.contains('/')).collect();
    let broken = at_once(4, files, |file| cordon(file).into_iter().collect());
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Plays all of these, so many at once, and returns the broken promises.
fn at_once<T>(
    count: usize,
    all: impl IntoIterator<Item = T, IntoIter: Send>,
    play: impl Fn(T) -> Vec<String> + Sync,
) -> Vec<String> {
    let next = Mutex::new(all.into_iter());
    let take = || next.lock().unwrap().next();
    let work = || std::iter::from_fn(take).flat_map(&play).collect::<Vec<_>>();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Where all nodes have the exclusion label, the last resort serves, and a drain takes a node out of that, too.
#[test]
fn a_drain_takes_a_labelled_node_out_of_the_last_resort() {
    let mut scenario = Scenario::set(Row::with("haproxy/httpchk-get.cfg"));
    let sim = scenario.nodes.cluster.sim.clone();
    for name in NODES {
        assert!(sim.label(name, EXCLUDE_LABEL, Some("")));
    }
    scenario.nodes.each_agent(|agent| drop(agent.wait_for("the label", |reply| reply.status == 503)));
    scenario.nodes.wait_for_traffic_on(&[0, 1, 2]);
    Event::Cordon.happen(0, &mut scenario);
    assert!(scenario.left.is_some(), "it still serves");
    scenario.nodes.wait_for_traffic_on(&[1, 2]);
    // Without a node that is not drained, drained ones serve.
    assert!(sim.cordon(NODES[1]) && sim.cordon(NODES[2]));
    scenario.nodes.wait_for_traffic_on(&[0, 1, 2]);
}

/// The number of cordons: the time until the balancer notices depends on the phase of its probes.
const CORDONS: u32 = 5;
/// The additional delay of each cordon: five hit intervals of half a second and of one at different phases.
const LATER: Duration = Duration::from_millis(220);

/// Plays every event with one row, and returns the broken promises.
fn play(number: usize, row: &Row, cells: &Mutex<Cells>) -> Vec<String> {
    let mut all_broken = Vec::new();
    let mut scenario = Scenario::set(*row);
    for event in Event::all() {
        let times = if event == Event::Cordon { CORDONS } else { 1 };
        let outcomes: Vec<Outcome> = (0..times).map(|time| scenario.play(event, LATER * time)).collect();
        all_broken.extend(outcomes.iter().filter_map(|outcome| broken(row, event, outcome)));
        let cell = Cell(outcomes);
        eprintln!("  {}, {}: {cell}", row.title(), event.name());
        cells.lock().unwrap().insert((number, event), cell);
    }
    all_broken
}

#[test]
#[ignore = "takes half an hour: make lb-test"]
fn table() {
    let chosen = std::env::var("LB").unwrap_or_default();
    let is_chosen = |row: &Row| chosen.split('|').any(|part| row.title().contains(part));
    let rows: Vec<_> = ROWS.iter().enumerate().filter(|(_, row)| is_chosen(row)).collect();
    assert!(!rows.is_empty(), "LB={chosen} names no row");
    let cells = Mutex::new(Cells::new());
    // More than two rows at once would distort the times.
    let broken = at_once(2, &rows, |(number, row)| {
        // A panic has printed its reason.
        let played = catch_unwind(AssertUnwindSafe(|| play(*number, row, &cells)));
        played.unwrap_or_else(|_| vec![format!("{}: broke off, as shown above", row.title())])
    });
    let cells = cells.into_inner().unwrap();
    println!(
        "failed of all requests · from the event to the last new connection on the node · an open one · the balancer's word"
    );
    println!("\n{}", table::render(&cells));
    if std::env::var_os("LB_WRITE").is_some_and(|value| !value.is_empty()) {
        assert_eq!(rows.len(), ROWS.len(), "a part of the table is not written");
        table::write(&cells);
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
