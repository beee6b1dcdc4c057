//! Tests of nodegate-haproxy: its plan, its commands to HAProxy, and its promises with a real HAProxy, which
//! `make haproxy-test` prints as a table.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says why and fails"
)]

mod ansible;
mod applier;
mod beginnings;
mod by_check;
mod churn;
mod debian;
mod exposure;
mod faults;
mod guest;
mod host;
mod inherits;
mod interrupted;
mod kubeconfig;
mod lab;
mod last_resort;
mod mover;
mod moves;
mod operators;
mod packages;
mod pair;
mod places;
mod plan;
mod plan_lines;
mod refusals;
mod reloads;
mod removal;
mod returning;
mod scale;
mod servers;
mod services;
mod settings;
mod statuses;
mod structure;
mod traffic;
mod versions;
mod watch;
mod writers;

use futures::FutureExt;
use std::panic::AssertUnwindSafe;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) result: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn table() {
    let mut table = Table::default();
    println!();
    line("what", "result");
    line("HAProxy", &versions::version());
    table.row(structure::appears()).await;
    table.row(structure::nodes_come_and_go()).await;
    table.row(structure::conflict_and_hostile_annotations()).await;
    table.row(structure::the_guard_holds()).await;
    table.row(removal::addresses_vanish()).await;
    table.row(removal::replaced_while_away()).await;
    table.row(removal::changed_setting()).await;
    table.row(removal::another_cluster()).await;
    table.row(Box::pin(guest::five_steps())).await;
    table.row(guest::paused()).await;
    table.row(Box::pin(guest::two_clusters())).await;
    table.row(guest::certificates()).await;
    table.row(guest::refused()).await;
    table.row(refusals::unreadable()).await;
    table.row(refusals::absent_address()).await;
    table.row(refusals::forbidden_port()).await;
    table.row(refusals::refused_port()).await;
    table.row(exposure::node_ports()).await;
    table.row(exposure::one_port_twice()).await;
    table.row(exposure::held_port()).await;
    table.row(churn::other_node_port()).await;
    table.row(churn::other_address()).await;
    table.row(churn::checks()).await;
    table.row(churn::node_joins(500, 100)).await;
    table.row(moves::flips(100)).await;
    table.row(moves::states_survive_a_reload()).await;
    table.row(moves::stubborn_agent()).await;
    table.row(moves::draining_agent()).await;
    table.row(moves::local_traffic()).await;
    table.row(by_check::without_the_program()).await;
    table.row(by_check::over_a_reload()).await;
    table.row(by_check::silent_kubelet()).await;
    table.row(last_resort::mass_cordon()).await;
    table.row(last_resort::the_least_bad_nodes()).await;
    table.row(last_resort::joined_nodes()).await;
    table.row(last_resort::local_service()).await;
    table.row(operators::foreign_change()).await;
    table.row(operators::copied_sections()).await;
    table.row(services::source_ranges()).await;
    table.row(services::class()).await;
    table.row(services::session_affinity()).await;
    table.row(services::nodes_by_label()).await;
    table.row(services::control_plane_frontend()).await;
    table.row(returning::cordoned_at_first_load()).await;
    table.row(returning::not_ready_at_first_load()).await;
    table.row(returning::cordoned_at_once()).await;
    table.row(returning::cordoned_at_a_reload()).await;
    table.row(returning::joins_cordoned()).await;
    table.row(returning::local_service_moves()).await;
    table.row(returning::made_again()).await;
    table.row(returning::states_without_ports()).await;
    table.row(returning::another_check_port()).await;
    table.row(returning::operators_state_file()).await;
    table.row(beginnings::stubborn_agent_at_first_load()).await;
    table.row(beginnings::local_servers_start_down()).await;
    table.row(beginnings::many_local_services()).await;
    table.row(inherits::default_server()).await;
    table.row(Box::pin(faults::broken_template())).await;
    table.row(Box::pin(faults::full_disk())).await;
    table.row(Box::pin(faults::refused_reload())).await;
    table.row(reloads::other_configuration()).await;
    table.row(reloads::failing_at_first()).await;
    table.row(reloads::late_haproxy()).await;
    table.row(reloads::stopped_haproxy()).await;
    table.row(reloads::timed_out()).await;
    table.row(interrupted::killed_in_a_reload()).await;
    table.row(interrupted::unwritable_state()).await;
    table.row(writers::second_writer()).await;
    table.row(writers::standby()).await;
    table.row(Box::pin(statuses::takeover())).await;
    table.row(Box::pin(statuses::own_statuses())).await;
    table.row(statuses::why_not()).await;
    table.row(faults::frozen_worker()).await;
    table.row(faults::frozen_master()).await;
    table.row(faults::api_outage()).await;
    table.row(scale::memory()).await;
    let pair = tokio::task::spawn_blocking(pair::upgraded);
    table.rows(async { pair.await.unwrap() }).await;
    table.rows(scale::scale(500, 200)).await;
    assert_eq!(table.failed, 0, "rows without a result: see above for why");
}

fn line(what: &str, result: &str) {
    println!("| {what:<44} | {result:<108} |");
}

#[derive(Default)]
struct Table {
    /// The number of scenarios without a result.
    failed: usize,
}

impl Table {
    async fn row(&mut self, story: impl Future<Output = Row>) {
        self.rows(async { vec![story.await] }).await;
    }

    /// Prints the rows of scenarios. If one fails, says so and continues with the others.
    async fn rows(&mut self, stories: impl Future<Output = Vec<Row>>) {
        if let Ok(rows) = AssertUnwindSafe(stories).catch_unwind().await {
            for row in rows {
                line(row.what, &row.result);
            }
        } else {
            self.failed += 1;
            line("", "FAILED");
        }
    }
}
