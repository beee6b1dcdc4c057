//! nodegate-haproxy: what it plans, what it tells HAProxy, and its promises against a real one, which
//! `make haproxy-test` prints as a table.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says why and fails"
)]

mod applier;
mod faults;
mod lab;
mod last_resort;
mod mover;
mod moves;
mod plan;
mod reloads;
mod returning;
mod scale;
mod settings;
mod structure;
mod traffic;
mod watch;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) result: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn table() {
    let line = |row: Row| println!("| {:<44} | {:<108} |", row.what, row.result);
    println!();
    line(Row { what: "what", result: "result".to_owned() });
    line(structure::appears().await);
    line(structure::nodes_come_and_go().await);
    line(structure::conflict_and_hostile_annotations().await);
    line(structure::the_guard_holds().await);
    line(moves::flips(100).await);
    line(moves::states_survive_a_reload().await);
    line(moves::stubborn_agent().await);
    line(moves::draining_agent().await);
    line(moves::local_traffic().await);
    line(last_resort::mass_cordon().await);
    line(last_resort::the_least_bad_nodes().await);
    line(last_resort::joined_nodes().await);
    line(last_resort::local_service().await);
    line(returning::cordoned_at_first_load().await);
    line(returning::not_ready_at_first_load().await);
    line(returning::cordoned_at_once().await);
    line(returning::cordoned_at_a_reload().await);
    line(returning::joins_cordoned().await);
    line(returning::local_service_moves().await);
    line(returning::states_without_ports().await);
    line(returning::another_check_port().await);
    line(returning::operators_state_file().await);
    line(faults::broken_template().await);
    line(faults::full_disk().await);
    line(faults::refused_reload().await);
    line(reloads::other_configuration().await);
    line(reloads::failing_at_first().await);
    line(reloads::late_haproxy().await);
    line(faults::frozen_worker().await);
    line(faults::frozen_master().await);
    line(faults::api_outage().await);
    line(scale::memory().await);
    for row in scale::scale(500, 200).await {
        line(row);
    }
}
