//! Tests of the promises of nodegate-haproxy with a real HAProxy, which `make haproxy-test` prints as a table.
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
mod reloads;
mod removal;
mod scale;
mod servers;
mod services;
mod settings;
mod statuses;
mod templates;
mod traffic;

use futures::FutureExt;
use nodegate_testbed::programs::system;
use std::panic::AssertUnwindSafe;

/// Makes a test of each scenario, and a function that adds a row of each to a table.
macro_rules! scenarios {
    ($($module:ident: $($scenario:ident),+;)+) => {
        mod scenarios {
            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    Box::pin(crate::$module::$scenario()).await;
                })+
            })+
        }

        async fn all_scenarios(table: &mut Table) {
            $($(table.row(Box::pin($module::$scenario())).await;)+)+
        }
    };
}

scenarios! {
    templates: hostile_defaults_reach_no_generated_section,
        a_broken_template_leaves_the_last_file_running,
        a_template_that_tracks_a_deleted_node_is_named_until_it_is_edited;
    elsewhere: a_haproxy_that_was_started_with_another_file_is_named,
        a_file_that_was_replaced_by_hand_and_loaded_is_named_and_not_replaced,
        files_beside_ours_are_checked_with_it_and_do_not_reach_it,
        a_file_that_is_mounted_by_itself_is_named;
    environment: a_check_has_the_master_s_variables_directory_options_and_sockets,
        a_check_that_prints_without_end_or_hangs_is_ended;
    cordons: a_cordon_and_a_death_with_agents,
        a_cordon_without_agents_is_obeyed_and_the_failing_checks_are_named,
        a_cordon_and_a_death_of_a_local_service_on_kube_proxy_s_port,
        local_services_are_checked_as_explain_says;
    last_resort: all_nodes_are_cordoned_and_no_request_is_lost,
        drained_nodes_serve_before_those_that_are_not_ready_and_any_node_before_none,
        drained_nodes_with_an_endpoint_serve_a_local_service;
    forwards: a_forward_leads_to_the_chosen_nodes_and_asks_for_the_named_checks;
    services: only_clients_in_the_source_ranges_are_served,
        a_client_stays_with_its_node_over_reloads_and_leaves_it_when_it_drains,
        a_service_is_served_by_the_nodes_that_it_names_by_their_labels,
        two_services_have_one_port_on_two_addresses_and_a_busy_port_is_left_out;
    removal: an_empty_list_keeps_everything;
    reloads: changed_node_ports_are_used_at_once_with_the_states_of_before,
        a_storm_of_changes_is_a_few_reloads,
        a_command_reloads_and_its_failure_changes_nothing;
    faults: a_full_disk_changes_nothing,
        an_api_outage_is_survived;
    statuses: one_of_two_writes_once_and_the_other_takes_over,
        a_status_goes_with_its_service_and_those_of_others_stay,
        events_say_why_a_service_is_not_published;
}

/// One line of the table.
pub(crate) struct Row {
    what: &'static str,
    result: String,
}

pub(crate) fn row(what: &'static str, result: impl Into<String>) -> Row {
    Row { what, result: result.into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn table() {
    let mut table = Table::default();
    println!();
    line("what", "result");
    line("HAProxy", &version());
    all_scenarios(&mut table).await;
    table.row(Box::pin(reloads::under_traffic(200))).await;
    table.row(Box::pin(faults::killed(100))).await;
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
