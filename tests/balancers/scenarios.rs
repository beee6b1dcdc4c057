//! Every balancer with every documented health check, under traffic.

use crate::balancer::{ROWS, Row, Source};
use crate::event::Event;
use crate::nodes::NODES;
use crate::stage::{Outcome, Stage};
use crate::table::{self, Cell, Cells};
use nodegate_readiness::EXCLUDE_LABEL;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Returns the broken promise, if any: in no event does a client notice anything, and an outage of the API
/// empties no pool.
fn broken(row: &Row, event: Event, outcome: &Outcome) -> Option<String> {
    let must_stay = matches!(event, Event::ApiOutage | Event::Rollout);
    let left = outcome.left_after.is_some();
    let held =
        outcome.failures.is_empty() && outcome.kept && !(must_stay && left) && (left || !event.must_leave());
    let what = format!("{}, {}: {outcome:?}", row.title(), event.name());
    (!held && row.reason(event).is_none()).then_some(what)
}

/// Returns the row of a documented configuration, with Debian's HAProxy.
fn documented(file: &str) -> Row {
    let mut row = *ROWS.iter().find(|row| row.file == file).unwrap();
    if let Source::Haproxy(_) = row.source {
        row.source = Source::Debian;
    }
    row
}

/// Plays a cordon with one documented configuration.
fn cordon(file: &str) {
    let row = documented(file);
    if !row.is_there() {
        println!("not played: {}: hack/install fetches it", row.title());
        return;
    }
    let outcome = Stage::set(row).play(Event::Cordon, Duration::ZERO);
    println!("{file}, cordon: {}", Cell::of(std::slice::from_ref(&outcome)));
    assert_eq!(broken(&row, Event::Cordon, &outcome), None);
    assert!(outcome.left_after.is_some(), "{outcome:?}");
}

macro_rules! cordons {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        fn $name() {
            cordon($file);
        })*

        #[test]
        fn every_documented_configuration_has_a_cordon_test() {
            let shown = [$($file),*];
            let documented = ROWS.iter().filter(|row| row.file.contains('/'));
            documented.for_each(|row| assert!(shown.contains(&row.file), "{}", row.title()));
        }
    };
}

cordons! {
    cordon_with_httpchk_get "haproxy/httpchk-get.cfg"
    cordon_with_plain_httpchk "haproxy/httpchk-options.cfg"
    cordon_with_expect "haproxy/expect.cfg"
    cordon_with_disable_on_404 "haproxy/disable-on-404.cfg"
    cordon_with_agent_check "haproxy/agent-check.cfg"
    cordon_with_envoy "envoy/nodes.yaml"
    cordon_with_nginx "nginx/local-servers.conf"
    cordon_with_apache "apache/nodes.conf"
    cordon_with_caddy "caddy/Caddyfile"
    cordon_with_traefik "traefik/http.yaml"
    cordon_with_traefik_tcp "traefik/tcp.yaml"
    cordon_with_vrrp "keepalived/vrrp.conf"
    cordon_with_bgp "bgp/exabgp.conf"
}

/// Where all nodes have the exclusion label, the last resort serves, and a drain takes a node out of that, too.
#[test]
fn a_drain_takes_a_labelled_node_out_of_the_last_resort() {
    let row = documented("haproxy/httpchk-get.cfg");
    let mut stage = Stage::set(row);
    let sim = stage.nodes.cluster.sim.clone();
    for name in NODES {
        assert!(sim.label(name, EXCLUDE_LABEL, Some("")));
    }
    stage.nodes.each_agent(|agent| drop(agent.wait_for("the label", |reply| reply.status == 503)));
    stage.nodes.wait_for_traffic_on(&[0, 1, 2]);
    Event::Cordon.happen(0, &mut stage);
    assert!(stage.left.is_some(), "it still serves");
    stage.nodes.wait_for_traffic_on(&[1, 2]);
    // Without a node that is not drained, drained ones serve.
    assert!(sim.cordon(NODES[1]) && sim.cordon(NODES[2]));
    stage.nodes.wait_for_traffic_on(&[0, 1, 2]);
}

/// The number of cordons: the time until the balancer notices depends on the phase of its probes.
const CORDONS: u32 = 5;
/// The additional delay of each cordon: five of these hit an interval of half a second and one of a second at
/// five different phases.
const LATER: Duration = Duration::from_millis(220);

/// Plays every event with one row, and returns the broken promises.
fn play(number: usize, row: &Row, cells: &Mutex<Cells>) -> Vec<String> {
    let mut all_broken = Vec::new();
    let mut stage = Stage::set(*row);
    for event in Event::all() {
        let times = if event == Event::Cordon { CORDONS } else { 1 };
        let outcomes: Vec<Outcome> = (0..times).map(|time| stage.play(event, LATER * time)).collect();
        all_broken.extend(outcomes.iter().filter_map(|outcome| broken(row, event, outcome)));
        let cell = Cell::of(&outcomes);
        eprintln!("  {}, {}: {cell}", row.title(), event.name());
        cells.lock().unwrap().insert((number, event), cell);
    }
    all_broken
}

/// The number of rows that run at once: more would distort the times.
const AT_ONCE: usize = 2;

#[test]
#[ignore = "takes half an hour: make lb-test"]
fn table() {
    let chosen = std::env::var("LB").unwrap_or_default();
    let is_chosen = |row: &Row| chosen.split('|').any(|part| row.title().contains(part));
    let rows: Vec<_> = ROWS.iter().enumerate().filter(|(_, row)| is_chosen(row)).collect();
    assert!(!rows.is_empty(), "LB={chosen} names no row");
    let cells = Mutex::new(Cells::new());
    let next = Mutex::new(rows.iter());
    let play_the_next = || {
        let (number, row) = next.lock().unwrap().next()?;
        // A panic has printed its reason.
        let played = catch_unwind(AssertUnwindSafe(|| play(*number, row, &cells)));
        Some(played.unwrap_or_else(|_| vec![format!("{}: broke off, as shown above", row.title())]))
    };
    let broken: Vec<String> = thread::scope(|scope| {
        let all = || std::iter::from_fn(play_the_next).flatten().collect::<Vec<_>>();
        let workers = [(); AT_ONCE].map(|()| scope.spawn(all));
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
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
