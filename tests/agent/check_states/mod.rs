//! Each check beside the component that it tests, in every state of that component. For each state: the
//! agent's answer, the reason, the seconds until then, and the first answer of an agent that starts in that
//! state.
//!
//! `make test` plays the states at the hurried pace. `make checks-test` plays all of them with the default
//! settings, prints the table, and writes it into docs/checks.md on request.

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
use table::{Seconds, Story};

const STORIES: &[Story] = &[
    Story::of::<cluster::NodeReady>(),
    Story::of::<cluster::Conditions>(),
    Story::of::<cluster::Service>(),
    Story::of::<okd_router::Router>(),
    Story::of::<kubelet::Kubelet>(),
    Story::of::<kube_proxy::KubeProxy>(),
    Story::of::<kube_proxy::Deployed>(),
    Story::of::<kube_proxy::Booting>(),
    Story::of::<container_runtime::Runtime>(),
    Story::of::<container_runtime::WithoutCri>(),
    Story::of::<filesystem_ro::Filesystem>(),
    Story::of::<filesystem_ro::Unseen>(),
    Story::of::<disk_pressure::Disk>(),
    Story::of::<disk_pressure::Served>(),
    Story::of::<disk_pressure::Unseen>(),
    Story::of::<network::Dns>(),
    Story::of::<network::Gateway>(),
    Story::of::<network::Leftover>(),
    Story::of::<nginx::Http>(),
    Story::of::<nginx::Tcp>(),
];

fn play_all(pace: Pace) -> (Seconds, bool) {
    let seconds = Mutex::new(Seconds::new());
    let all_held = Mutex::new(true);
    thread::scope(|scope| {
        for story in STORIES.iter().filter(|story| pace.is_hurried() || chosen(story)) {
            scope.spawn(|| {
                for (number, told) in (story.play)(pace).iter().enumerate() {
                    seconds.lock().unwrap().insert((story.title, number), table::cell(told.as_ref()));
                    if !holds(told.as_ref(), pace) {
                        *all_held.lock().unwrap() = false;
                    }
                }
            });
        }
    });
    (seconds.into_inner().unwrap(), all_held.into_inner().unwrap())
}

/// Returns true if this run plays the story: `make checks-test CHECKS=kubelet` plays one check alone.
fn chosen(story: &Story) -> bool {
    std::env::var("CHECKS").map_or(true, |check| check.is_empty() || story.title.starts_with(&check))
}

/// Returns true if the state held. Only a hurried run may leave a state out.
fn holds(told: Option<&Told>, pace: Pace) -> bool {
    told.map_or(pace.is_hurried(), Result::is_ok)
}

#[test]
fn every_state_of_every_check_at_the_hurried_pace() {
    let (seconds, all_held) = play_all(Pace::Hurried);
    assert!(all_held, "{}", table::render(STORIES, &seconds));
}

#[test]
fn the_table_in_checks_md_matches_the_states() {
    table::assert_documented(STORIES);
}

#[test]
#[ignore = "takes minutes: make checks-test"]
fn table() {
    assert!(STORIES.iter().any(chosen), "CHECKS names no check of the table");
    // The row of a story that fails shows the panic.
    std::panic::set_hook(Box::new(|_| {}));
    let (seconds, all_held) = play_all(Pace::Defaults);
    let _ = std::panic::take_hook();
    let table = table::render(STORIES, &seconds);
    println!("{table}");
    assert!(all_held, "not all held");
    if std::env::var_os("CHECKS_WRITE").is_some_and(|value| !value.is_empty()) {
        assert!(STORIES.iter().all(chosen), "a part of the table is not written");
        table::write(&table);
    }
}
