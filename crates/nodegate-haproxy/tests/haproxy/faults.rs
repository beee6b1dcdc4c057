//! Failures of the programs, of the template and of the API server. The removal limit counts servers, and lets changes pass
//! that only look like a loss.

use crate::scenario::{Scenario, rounds};
use crate::servers::{Traffic, get, node_name};
use crate::statuses::{a_while, ingress, publishing, writes};
use nodegate_testbed::haproxy::check;
use nodegate_testbed::process::signal;
use std::time::Duration;

const HELD: &str = "nodegate_haproxy_problems{kind=\"held\"}";

/// Kills either program at a random moment of a change, which is a reload or a few weights.
#[test]
fn both_programs_are_killed_at_random_and_come_back() {
    let mut scenario = Scenario::new(2);
    scenario.reload_interval = "0s";
    let port = scenario.publish();
    for round in 0..rounds(6, 100) {
        let (node, weight) = (node_name(0), if round % 2 == 0 { 0 } else { 100 });
        assert!(if weight == 0 { scenario.sim.cordon(&node) } else { scenario.sim.uncordon(&node) });
        if round % 3 != 0 {
            scenario.change(round);
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..600)));
        if fastrand::bool() {
            scenario.kill_program();
            check(&scenario.config).unwrap();
            scenario.start_program();
        }
        if fastrand::bool() {
            scenario.stop_haproxy();
            scenario.start_haproxy();
        }
        scenario.until_weight(port, 0, weight);
        scenario.until("it is ready", || scenario.is_ready());
        get(port).unwrap_or_else(|error| panic!("round {round}: {error}\n{}", scenario.log()));
    }
    scenario.until_metric("nodegate_haproxy_pending", 0.0);
    // A reload may be under way.
    let files = ["haproxy.cfg.applied", "haproxy.cfg.states"];
    scenario.until("no other file is left", || scenario.left_behind() == files);
}

#[test]
fn broken_templates_a_frozen_master_and_an_api_outage_change_nothing() {
    let mut scenario = Scenario::new(3);
    let port = scenario.publish();
    let old = scenario.written();
    let traffic = Traffic::start(port);
    for (template, says) in [
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        (".if defined(NO)\nglobal\n", ".if"),
    ] {
        std::fs::write(&scenario.template, template).unwrap();
        scenario.until_logged(says);
        scenario.until("the old file is back", || scenario.written() == old);
        scenario.until("it is ready", || scenario.is_ready());
    }
    // A broken template keeps no cordon from the running HAProxy and its file.
    scenario.drain(port, 1);
    scenario.until("the file has the cordon", || scenario.written().contains(" weight 0"));
    scenario.undrain(port, 1);
    let before = scenario.reloads();
    std::fs::write(&scenario.template, "global\n  maxconn 1999").unwrap();
    scenario.until_reloaded(before);

    let master = scenario.haproxy.as_ref().unwrap().id();
    signal(master, "STOP");
    assert!(scenario.sim.cordon(&node_name(0)));
    scenario.until("/readyz says so", || scenario.page("/readyz").contains("does not answer"));
    signal(master, "CONT");
    scenario.until_weight(port, 0, 0);
    scenario.undrain(port, 0);

    scenario.until_metric("nodegate_haproxy_pending", 0.0);
    let old = scenario.written();
    let watching = || scenario.metric("nodegate_haproxy_watching");
    scenario.kill_api();
    scenario.until("the outage is seen", || watching() == Some(0.0));
    let before = traffic.answered();
    scenario.until("traffic goes on", || traffic.answered() > before + 20);
    scenario.until("it is ready", || scenario.is_ready());
    assert_eq!(scenario.written(), old, "{}", scenario.log());
    scenario.wait(scenario.sim.restart(true)).unwrap();
    scenario.until("it watches again", || watching() == Some(1.0));
    scenario.drain(port, 0);
    traffic.none_lost(&scenario);
}

/// Each of them alone is within the limit.
#[test]
fn ten_nodes_that_vanish_one_after_the_other_within_a_moment_are_one_removal() {
    let mut scenario = Scenario::new(10);
    scenario.publish();
    for index in 0..10 {
        assert!(scenario.sim.delete("nodes", "", &node_name(index)));
        std::thread::sleep(Duration::from_millis(3));
    }
    // On a busy machine, the first half may be one change, and the second half another one.
    scenario.until("half of them are kept", || scenario.metric(HELD) >= Some(5.0));
    a_while(&scenario);
    let written = scenario.written();
    let servers = written.split_once("backend nodegate_nodes").unwrap().1.matches("  server ").count();
    assert!(servers >= 5, "{written}");
}

/// Loses etcd's data and gets it back: the lists have nothing meanwhile, and no watch has reported a deletion.
#[test]
fn an_empty_list_keeps_everything() {
    let mut scenario = publishing(0);
    let empty = scenario.sim.back_up_etcd();
    for index in 0..3 {
        scenario.add_node(index);
    }
    let port = scenario.publish();
    // Not only in the cluster: a write whose answer is lost is repeated.
    scenario.until_logged("wrote to the cluster");
    let applied = || scenario.read("haproxy.cfg.applied");
    scenario.until("it is remembered", || applied().contains("\"web\""));
    let (before, status, full) = (scenario.written(), ingress(&scenario, "web"), scenario.sim.back_up_etcd());
    let traffic = Traffic::start(port);
    let restore = |scenario: &Scenario, etcd| {
        scenario.kill_api();
        scenario.sim.restore_etcd(etcd);
        scenario.wait(scenario.sim.restart(true)).unwrap();
    };
    restore(&scenario, &empty);
    scenario.until_metric(HELD, 4.0);
    scenario.kill_program();
    scenario.start_program();
    scenario.until_metric(HELD, 4.0);
    scenario.until("it is ready", || scenario.is_ready());
    assert_eq!(scenario.written(), before, "{}", scenario.log());
    a_while(&scenario);
    restore(&scenario, &full);
    scenario.until("nothing is kept any more", || scenario.metric(HELD).is_none());
    a_while(&scenario);
    assert_eq!((writes(&scenario), ingress(&scenario, "web")), (1, status), "{}", scenario.log());
    traffic.none_lost(&scenario);
}
