//! Every fault that the agent must survive: the real program on a simulated cluster, with a load balancer that probes it
//! before, during and after.
//!
//! Each story is a test. `make faults` tells all of them, the long ones, too, and prints a table.

mod access;
mod answers;
mod clients;
mod connections;
mod etcd;
mod history;
mod host;
mod kernel;
mod node;
mod restarts;
mod scene;
mod simulator;
mod steady;
mod table;
mod upgrades;

use table::Story;

/// The one list: fault, module, test. Left to `make faults` are a `long` story, one that has the machine to itself there
/// (`alone`), and one that `tests/agent/hostile` tells with more besides (`hostile`).
macro_rules! stories {
    ($($fault:literal => $module:ident::$story:ident $($how:ident)?,)*) => {
        const STORIES: &[Story] = &[$(
            Story { fault: $fault, tell: $module::$story, alone: stories!(@alone $($how)?) },
        )*];
        $(stories!(@test $fault, $module::$story $($how)?);)*
    };
    (@alone alone) => { true };
    (@alone $($how:ident)?) => { false };
    (@test $fault:literal, $module:ident::$story:ident) => {
        #[test]
        fn $story() {
            eprintln!("{}", $module::$story().line($fault));
        }
    };
    (@test $fault:literal, $module:ident::$story:ident $how:ident) => {
        #[test]
        #[ignore = "make faults"]
        fn $story() {
            eprintln!("{}", $module::$story().line($fault));
        }
    };
}

stories! {
    "API server killed, restarted" => connections::killed_and_restarted,
    "API server killed, restarted with old versions gone" => connections::restarted_from_a_compacted_store,
    "API server down when the agent starts" => connections::down_at_the_start,
    "API server stopped (SIGSTOP)" => connections::stopped,
    "API server frozen" => connections::frozen,
    "the same, while the Node flapped" => connections::nothing_old_is_told_when_it_thaws,
    "packets of open connections dropped" => connections::half_open,
    "the same, over HTTP/1.1 without TLS" => connections::half_open_without_tls,
    "the same, by a firewall" => kernel::half_open_by_a_firewall,
    "packets of new connections dropped, too" => connections::blackholed,
    "the same, by a firewall" => kernel::blackholed_by_a_firewall,
    "new connections accepted, never served" => connections::accepted_and_never_served,
    "API server cut off from etcd" => etcd::cut_off_from_etcd,
    "the same, no right to watch Leases" => etcd::cut_off_from_etcd_without_leases,
    "the same for Nodes alone, Leases go on" => etcd::nodes_cut_off_while_leases_go_on long,
    "API server cut off from etcd, a healthy one behind the same address" => etcd::cut_off_beside_a_healthy_one,
    "the same, no right to watch Leases" => etcd::cut_off_beside_a_healthy_one_without_leases,
    "429 with Retry-After for one check, a healthy API server behind the same address" => etcd::refused_beside_a_healthy_one,
    "etcd restored to an older revision" => history::restored,
    "GOAWAY after every answer" => history::goaway_after_every_answer,
    "401: token rotated" => access::token_rotated,
    "403: RBAC for Nodes taken away, given back" => access::rbac_for_nodes_taken_away_and_given_back,
    "403: no right to watch Leases" => access::rbac_forbids_leases,
    "certificate rotated" => access::certificate_rotated,
    "certificate and CA rotated" => access::ca_rotated,
    "410: compacted under an open watch" => answers::compacted_under_an_open_watch,
    "429 storm" => answers::storm_of_429,
    "500, 503, 504 storm" => answers::storm_of_5xx,
    "GOAWAY under an open watch" => answers::told_to_go_away,
    "watch closed at once, in a loop" => answers::watches_closed_at_once_in_a_loop,
    "malformed events" => answers::malformed_events,
    "malformed lists" => answers::malformed_lists,
    "stream cut in mid-event" => answers::cut_in_mid_event,
    "all watches deaf, the API answers" => answers::all_watches_deaf,
    "Node watch deaf beside a live Lease" => answers::node_watch_deaf_beside_a_live_lease long,
    "Node deleted, created again" => node::deleted_and_created_again,
    "kubelet dead" => node::dead_kubelet,
    "kubelet alone cut off from the API server" => node::kubelet_cut_off,
    "clock set back an hour" => host::clock_set_back,
    "clock set forward an hour" => host::clock_set_forward,
    "64 file descriptors, 300 idle clients, API reset" => host::few_descriptors,
    "file descriptors exhausted by idle clients" => host::descriptors_exhausted,
    "probe target accepts, never answers" => host::probe_target_never_answers,
    "10,000 idle clients" => clients::idle hostile,
    "slow-loris" => clients::slow_loris hostile,
    "garbage" => clients::garbage hostile,
    "requests of 1 MB" => clients::oversized hostile,
    "API server away for 8 s when the agent of a drained node starts" => restarts::booted_before_the_api_server,
    "agent replaced while no API server answers, a drain held" => restarts::replaced_in_an_outage,
    "agent replaced 50 times, 200 probes/s" => upgrades::fifty_replacements alone,
    "the same, 5 ms away" => upgrades::fifty_replacements_from_afar alone,
}

#[test]
#[ignore = "tells all of them: make faults"]
fn table() {
    // What broke a story is in its row.
    std::panic::set_hook(Box::new(|_| {}));
    let all_held = table::print(STORIES);
    let _ = std::panic::take_hook();
    assert!(all_held, "not all held");
}
