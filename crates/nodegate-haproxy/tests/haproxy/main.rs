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
mod cordons;
mod debian;
mod elsewhere;
mod environment;
mod faults;
mod forwards;
mod kubeconfig;
mod lab;
mod last_resort;
mod packages;
mod plan;
mod reloads;
mod removal;
mod scale;
mod servers;
mod services;
mod settings;
mod statuses;
mod templates;
mod traffic;
mod watch;

use futures::FutureExt;
use nodegate_testbed::programs::system;
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
    line("HAProxy", &version());
    table.row(Box::pin(templates::hostile_defaults())).await;
    table.row(templates::ports_of_the_template()).await;
    table.row(templates::broken_template()).await;
    table.row(templates::tracks_a_deleted_node()).await;
    table.row(elsewhere::another_file()).await;
    table.row(elsewhere::replaced_by_hand()).await;
    table.row(elsewhere::second_file()).await;
    table.row(elsewhere::mounted_file()).await;
    table.row(environment::of_the_master()).await;
    table.row(environment::endless_check()).await;
    table.row(Box::pin(cordons::with_agents())).await;
    table.row(Box::pin(cordons::without_agents())).await;
    table.row(Box::pin(cordons::local_service())).await;
    table.row(last_resort::mass_cordon()).await;
    table.row(last_resort::the_least_bad_nodes()).await;
    table.row(last_resort::local_service()).await;
    table.row(forwards::with_checks()).await;
    table.row(services::source_ranges()).await;
    table.row(services::class()).await;
    table.row(services::session_affinity()).await;
    table.row(services::nodes_by_label()).await;
    table.row(services::one_port_twice()).await;
    table.row(removal::addresses_vanish()).await;
    table.row(removal::empty_list()).await;
    table.row(Box::pin(reloads::under_traffic(100))).await;
    table.row(Box::pin(reloads::changed_ports())).await;
    table.row(reloads::storm()).await;
    table.row(reloads::by_a_command()).await;
    table.row(Box::pin(faults::killed(100))).await;
    table.row(faults::full_disk()).await;
    table.row(faults::api_outage()).await;
    table.row(Box::pin(statuses::takeover())).await;
    table.row(Box::pin(statuses::own_statuses())).await;
    table.row(statuses::why_not()).await;
    table.row(Box::pin(scale::scale(2000, 50))).await;
    assert_eq!(table.failed, 0, "rows without a result: see above for why");
}

/// Returns the version that the tested HAProxy prints.
fn version() -> String {
    let output = system("haproxy").arg("-v").output().expect("haproxy runs (hack/install-tools)");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
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
    /// Prints the row of a scenario. If it fails, says so and continues with the others.
    async fn row(&mut self, scenario: impl Future<Output = Row>) {
        if let Ok(row) = AssertUnwindSafe(scenario).catch_unwind().await {
            line(row.what, &row.result);
        } else {
            self.failed += 1;
            line("", "FAILED");
        }
    }
}
