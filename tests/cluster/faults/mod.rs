//! Every fault that the agent must survive: the real program on a simulated cluster, with a load balancer
//! that probes it before, during and after the fault.
//!
//! Each fault is a test. `make faults` plays all of them, also the long ones, and prints a table.

mod access;
mod answers;
mod clients;
mod connections;
mod etcd;
mod history;
mod host;
mod node;
mod scene;
mod simulator;
mod steady;
mod table;

use table::Scenario;

/// The only list: fault, module, test. `make faults` alone plays a `long` one: beside it, others would be late.
macro_rules! scenarios {
    ($($fault:literal => $module:ident::$scenario:ident $($how:ident)?,)*) => {
        const SCENARIOS: &[Scenario] = &[$(
            Scenario { fault: $fault, tell: $module::$scenario, alone: scenarios!(@alone $($how)?) },
        )*];
        $(scenarios!(@test $fault, $module::$scenario $($how)?);)*
    };
    (@alone alone) => { true };
    (@alone $($how:ident)?) => { false };
    (@test $fault:literal, $module:ident::$scenario:ident) => {
        #[test]
        fn $scenario() {
            eprintln!("{}", $module::$scenario().line($fault));
        }
    };
    (@test $fault:literal, $module:ident::$scenario:ident $how:ident) => {
        #[test]
        #[ignore = "make faults"]
        fn $scenario() {
            eprintln!("{}", $module::$scenario().line($fault));
        }
    };
}

scenarios! {
    "API server killed, restarted" => connections::api_server_killed_and_restarted,
    "API server down when the agent starts" => connections::api_server_down_at_agent_start,
    "API server stopped (SIGSTOP)" => connections::api_server_stopped,
    "API server frozen" => connections::api_server_frozen,
    "packets of open connections dropped" => connections::half_open,
    "packets of new connections dropped, too" => connections::connections_blackholed,
    "new connections accepted, never served" => connections::connections_accepted_and_never_served,
    "API server cut off from etcd" => etcd::api_server_cut_off_from_etcd,
    "the same, no right to watch Leases" => etcd::api_server_cut_off_from_etcd_without_leases,
    "the same for Nodes alone, Leases go on" => etcd::nodes_cut_off_from_etcd_while_leases_go_on long,
    "API server cut off from etcd, a healthy one behind the same address" => etcd::api_server_cut_off_from_etcd_beside_a_healthy_one,
    "the same, no right to watch Leases" => etcd::api_server_cut_off_from_etcd_beside_a_healthy_one_without_leases,
    "429 with Retry-After for one check, a healthy API server behind the same address" => etcd::consistency_check_refused_beside_a_healthy_api_server,
    "etcd restored to an older revision" => history::etcd_restored_to_an_older_revision,
    "GOAWAY after every answer" => history::goaway_after_every_answer,
    "401: token rotated" => access::token_rotated,
    "403: RBAC for Nodes taken away, given back" => access::rbac_for_nodes_taken_away_and_given_back,
    "403: no right to watch Leases" => access::rbac_forbids_leases,
    "certificate rotated" => access::api_server_certificate_rotated,
    "certificate and CA rotated" => access::api_server_ca_rotated,
    "410: compacted under an open watch" => answers::history_compacted_under_an_open_watch,
    "429 storm" => answers::storm_of_429,
    "500, 503, 504 storm" => answers::storm_of_5xx,
    "watch closed at once, in a loop" => answers::watches_closed_at_once_in_a_loop,
    "malformed events" => answers::malformed_watch_events,
    "malformed lists" => answers::malformed_lists,
    "stream cut in mid-event" => answers::watch_cut_in_mid_event,
    "all watches unresponsive, the API answers" => answers::all_watches_unresponsive,
    "Node watch unresponsive beside a live Lease" => answers::node_watch_unresponsive_beside_a_live_lease long,
    "Node deleted, created again" => node::node_deleted_and_created_again,
    "kubelet dead" => node::dead_kubelet,
    "kubelet alone cut off from the API server" => node::kubelet_cut_off,
    "clock set back an hour" => host::clock_set_back,
    "clock set forward an hour" => host::clock_set_forward,
    "64 file descriptors, 300 idle clients, API reset" => host::few_descriptors,
    "probe target accepts, never answers" => host::probe_target_never_answers,
    "10,000 idle clients" => clients::ten_thousand_idle_clients long,
    "slow-loris" => clients::slow_loris_clients,
    "garbage" => clients::garbage_requests,
    "requests of 1 MB" => clients::oversized_requests long,
}

#[test]
#[ignore = "tells all of them: make faults"]
fn table() {
    // The row of a fault shows its panic.
    std::panic::set_hook(Box::new(|_| {}));
    let all_held = table::print(SCENARIOS);
    let _ = std::panic::take_hook();
    assert!(all_held, "not all held");
}
