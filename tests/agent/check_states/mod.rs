//! Each check beside the component that it tests, in every state of that component. For each state: the
//! agent's answer, the reason, the seconds until then, and the first answer of an agent that starts in that
//! state.
//!
//! `make test` plays the states at the quick pace. `make checks-test` plays all of them with the default
//! settings, prints the table, and writes its surprising rows into docs/checks.md on request.

mod cluster;
mod container_runtime;
mod disk_pressure;
mod filesystem_ro;
mod kube_proxy;
mod kubelet;
mod network;
mod nginx;
mod okd_router;
mod part;
mod play;
mod table;

use part::Pace;
use play::Told;
use std::sync::Mutex;
use std::thread;
use table::{Rows, Scenario, Seconds};

const SCENARIOS: &[Scenario] = &[
    Scenario::of::<cluster::NodeReady>(),
    Scenario::of::<cluster::Conditions>(),
    Scenario::of::<cluster::Service>(),
    Scenario::of::<okd_router::Router>(),
    Scenario::of::<kubelet::Kubelet>(),
    Scenario::of::<kube_proxy::KubeProxy>(),
    Scenario::of::<kube_proxy::Deployed>(),
    Scenario::of::<kube_proxy::Booting>(),
    Scenario::of::<container_runtime::Runtime>(),
    Scenario::of::<container_runtime::WithoutCri>(),
    Scenario::of::<filesystem_ro::Filesystem>(),
    Scenario::of::<filesystem_ro::Unseen>(),
    Scenario::of::<disk_pressure::Disk>(),
    Scenario::of::<disk_pressure::Served>(),
    Scenario::of::<disk_pressure::Unseen>(),
    Scenario::of::<network::Dns>(),
    Scenario::of::<network::Gateway>(),
    Scenario::of::<network::Leftover>(),
    Scenario::of::<nginx::Http>(),
    Scenario::of::<nginx::Tcp>(),
];

fn play_all(pace: Pace) -> (Seconds, bool) {
    let seconds = Mutex::new(Seconds::new());
    let all_held = Mutex::new(true);
    thread::scope(|scope| {
        for scenario in SCENARIOS.iter().filter(|scenario| pace.is_quick() || chosen(scenario)) {
            scope.spawn(|| {
                for (number, told) in (scenario.play)(pace).iter().enumerate() {
                    seconds.lock().unwrap().insert((scenario.title, number), table::cell(told.as_ref()));
                    if !holds(told.as_ref(), pace) {
                        *all_held.lock().unwrap() = false;
                    }
                }
            });
        }
    });
    (seconds.into_inner().unwrap(), all_held.into_inner().unwrap())
}

/// Returns true if this run plays the scenario: `make checks-test CHECKS=kubelet` plays one check alone.
fn chosen(scenario: &Scenario) -> bool {
    std::env::var("CHECKS").map_or(true, |check| check.is_empty() || scenario.title.starts_with(&check))
}

/// Returns true if the state held. Only a quick run may leave a state out.
fn holds(told: Option<&Told>, pace: Pace) -> bool {
    told.map_or(pace.is_quick(), Result::is_ok)
}

#[test]
fn every_state_of_every_check_at_the_quick_pace() {
    let (seconds, all_held) = play_all(Pace::Quick);
    assert!(all_held, "{}", table::render(SCENARIOS, &seconds, Rows::All));
}

#[test]
fn the_table_in_checks_md_matches_the_states() {
    table::assert_documented(SCENARIOS);
}

#[test]
#[ignore = "takes minutes: make checks-test"]
fn table() {
    assert!(SCENARIOS.iter().any(chosen), "CHECKS names no check of the table");
    // The row of a scenario that fails shows the panic.
    std::panic::set_hook(Box::new(|_| {}));
    let (seconds, all_held) = play_all(Pace::Defaults);
    let _ = std::panic::take_hook();
    println!("{}", table::render(SCENARIOS, &seconds, Rows::All));
    assert!(all_held, "not all held");
    if std::env::var_os("CHECKS_WRITE").is_some_and(|value| !value.is_empty()) {
        assert!(SCENARIOS.iter().all(chosen), "a part of the table is not written");
        table::write(&table::render(SCENARIOS, &seconds, Rows::Surprising));
    }
}
