//! Failures of the programs, of the template and of the API server. The removal limit counts servers, and lets changes pass
//! that only look like a loss.

use crate::lab::{Lab, rounds};
use crate::servers::{Traffic, get, node_name};
use crate::statuses::{a_while, ingress, publishing, writes};
use nodegate_testbed::haproxy::check;
use nodegate_testbed::process::signal;
use std::time::Duration;

const HELD: &str = "nodegate_haproxy_problems{kind=\"held\"}";

/// Kills either program at a random moment of a change, which is a reload or a few weights.
#[test]
fn both_programs_are_killed_at_random_and_come_back() {
    let mut lab = Lab::new(2);
    lab.reload_interval = "0s";
    let port = lab.publish();
    for round in 0..rounds(6, 100) {
        let (node, weight) = (node_name(0), if round % 2 == 0 { 0 } else { 100 });
        assert!(if weight == 0 { lab.sim.cordon(&node) } else { lab.sim.uncordon(&node) });
        if round % 3 != 0 {
            lab.change(round);
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..600)));
        if fastrand::bool() {
            lab.kill_program();
            check(&lab.config).unwrap();
            lab.start_program();
        }
        if fastrand::bool() {
            lab.stop_haproxy();
            lab.start_haproxy();
        }
        lab.until_weight(port, 0, weight);
        lab.until("it is ready", || lab.is_ready());
        get(port).unwrap_or_else(|error| panic!("round {round}: {error}\n{}", lab.log()));
    }
    lab.until_metric("nodegate_haproxy_pending", 0.0);
    // A reload may be under way.
    let files = ["haproxy.cfg.applied", "haproxy.cfg.states"];
    lab.until("no other file is left", || lab.left_behind() == files);
}

#[test]
fn broken_templates_a_frozen_master_and_an_api_outage_change_nothing() {
    let mut lab = Lab::new(3);
    let port = lab.publish();
    let old = lab.written();
    let traffic = Traffic::start(port);
    for (template, says) in [
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        (".if defined(NO)\nglobal\n", ".if"),
    ] {
        std::fs::write(&lab.template, template).unwrap();
        lab.until_logged(says);
        lab.until("the old file is back", || lab.written() == old);
        lab.until("it is ready", || lab.is_ready());
    }
    // A broken template keeps no cordon from the running HAProxy and its file.
    lab.drain(port, 1);
    lab.until("the file has the cordon", || lab.written().contains(" weight 0"));
    lab.undrain(port, 1);
    let before = lab.reloads();
    std::fs::write(&lab.template, "global\n  maxconn 1999").unwrap();
    lab.until_reloaded(before);

    let master = lab.haproxy.as_ref().unwrap().id();
    signal(master, "STOP");
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("/readyz says so", || lab.page("/readyz").contains("does not answer"));
    signal(master, "CONT");
    lab.until_weight(port, 0, 0);
    lab.undrain(port, 0);

    lab.until_metric("nodegate_haproxy_pending", 0.0);
    let old = lab.written();
    let watching = || lab.metric("nodegate_haproxy_watching");
    lab.cluster.kill_api();
    lab.until("the outage is seen", || watching() == Some(0.0));
    let before = traffic.answered();
    lab.until("traffic goes on", || traffic.answered() > before + 20);
    lab.until("it is ready", || lab.is_ready());
    assert_eq!(lab.written(), old, "{}", lab.log());
    lab.cluster.wait(lab.sim.restart(true)).unwrap();
    lab.until("it watches again", || watching() == Some(1.0));
    lab.drain(port, 0);
    traffic.none_lost(&lab);
}

/// Each of them alone is within the limit.
#[test]
fn ten_nodes_that_vanish_one_after_the_other_within_a_moment_are_one_removal() {
    let mut lab = Lab::new(10);
    lab.publish();
    for index in 0..10 {
        assert!(lab.sim.delete("nodes", "", &node_name(index)));
        std::thread::sleep(Duration::from_millis(3));
    }
    // On a busy machine, the first half may be one change, and the second half another one.
    lab.until("half of them are kept", || lab.metric(HELD) >= Some(5.0));
    a_while(&lab);
    let servers = lab.written().split_once("backend nodegate_nodes").unwrap().1.matches("  server ").count();
    assert!(servers >= 5, "{}", lab.written());
}

/// Loses etcd's data and gets it back: the lists have nothing meanwhile, and no watch has reported a deletion.
#[test]
fn an_empty_list_keeps_everything() {
    let mut lab = publishing(0);
    let empty = lab.sim.back_up_etcd();
    for index in 0..3 {
        lab.add_node(index);
    }
    let port = lab.publish();
    // Not only in the cluster: a write whose answer is lost is repeated.
    lab.until_logged("wrote to the cluster");
    let applied = || lab.read("haproxy.cfg.applied");
    lab.until("it is remembered", || applied().contains("\"web\""));
    let (before, status, full) = (lab.written(), ingress(&lab, "web"), lab.sim.back_up_etcd());
    let traffic = Traffic::start(port);
    let restore = |lab: &Lab, etcd| {
        lab.cluster.kill_api();
        lab.sim.restore_etcd(etcd);
        lab.cluster.wait(lab.sim.restart(true)).unwrap();
    };
    restore(&lab, &empty);
    lab.until_metric(HELD, 4.0);
    lab.kill_program();
    lab.start_program();
    lab.until_metric(HELD, 4.0);
    lab.until("it is ready", || lab.is_ready());
    assert_eq!(lab.written(), before, "{}", lab.log());
    a_while(&lab);
    restore(&lab, &full);
    lab.until("nothing is kept any more", || lab.metric(HELD).is_none());
    a_while(&lab);
    assert_eq!((writes(&lab), ingress(&lab, "web")), (1, status), "{}", lab.log());
    traffic.none_lost(&lab);
}
