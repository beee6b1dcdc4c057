//! A change of the file is a reload: paced, proven, and without a lost request. A change of weights is none.

use crate::scenario::{Scenario, TEMPLATE, rounds};
use crate::servers::{Statuses, Traffic, answers, get, local, serve};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::TcpStream;
use std::time::Duration;

/// The number of reloads that a connection certainly outlasts: fewer than `mworker-max-reloads`.
const HELD: u64 = 40;
/// The most old workers: `mworker-max-reloads`, and the one that is being ended.
const MOST_OLD: usize = 51;

#[test]
fn a_cordon_takes_no_reload() {
    let (cordons, requests) = rounds((10, 1_000), (200, 100_000));
    let mut scenario = Scenario::new(3);
    let port = scenario.publish();
    let held: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(local(port)).unwrap()).collect();
    let (began, traffic) = (scenario.reloads(), Traffic::start(port));
    for round in 0..cordons {
        scenario.drain(port, round % 3);
        scenario.undrain(port, round % 3);
        scenario.until("requests", || traffic.answered() >= requests * (round + 1) / cordons);
    }
    scenario.until("the file has the weights", || !scenario.written().contains("weight 0"));
    assert_eq!(scenario.reloads(), began, "{}", scenario.log());
    traffic.none_lost(&scenario);
    assert!(held.into_iter().all(answers));
}

/// Clients send 500 requests for each reload. Before it, one opens a connection and keeps it.
#[test]
fn no_request_is_lost_over_reloads() {
    let reloads = rounds(10, 200);
    let mut scenario = Scenario::new(2);
    scenario.reload_interval = "0s";
    let port = scenario.publish();
    let traffic = Traffic::start(port);
    let began = scenario.reloads();
    let (mut held, mut most_old) = (Vec::new(), 0);
    for round in 0..reloads {
        held.push(TcpStream::connect(local(port)).unwrap());
        let before = scenario.reloads();
        scenario.change(round);
        scenario.until_reloaded(before);
        let due = 500 * usize::try_from(round + 1).unwrap();
        scenario.until("requests are answered", || traffic.answered() >= due);
        most_old = most_old.max(scenario.processes().map_or(0, |(_, old)| old));
        if round == (reloads - 1).min(HELD) {
            // The connection from before the first reload still works.
            assert!(answers(held.swap_remove(0)));
        }
    }
    let made = scenario.reloads() - began;
    traffic.none_lost(&scenario);
    assert!(made >= reloads && most_old <= MOST_OLD, "{made} reloads, {most_old} old workers");
}

/// Deletes, changes and creates Services faster than HAProxy may reload.
#[test]
fn bursts_of_services_are_a_few_reloads() {
    let [own, ports @ ..]: [u16; 5] = std::array::from_fn(|_| ports::free());
    let mut scenario = Scenario::new(2);
    scenario.reload_interval = "2s";
    let answer = "timeout client 5s\n  http-request return status 200";
    let template = format!("{TEMPLATE}listen own\n  mode http\n  bind 127.0.0.1:{own}\n  {answer}\n");
    std::fs::write(&scenario.template, template).unwrap();
    let web = scenario.publish();
    let node_ports = ports.map(|_| serve(&scenario.served, &Statuses::default()));
    let (traffic, before) = ([own, web].map(Traffic::start), scenario.reloads());
    let began = std::time::Instant::now();
    for round in 0..100_usize {
        for (index, port) in ports.into_iter().enumerate() {
            let name = format!("burst-{index}");
            if (round + index).is_multiple_of(4) {
                scenario.sim.delete("services", "default", &name);
            } else {
                let affinity = ["None", "ClientIP"][round % 2];
                let more = json!({"spec": {"sessionAffinity": affinity}});
                scenario.sim.apply(Scenario::service(&name, port, node_ports[index], &more)).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // The last round has deleted the second one.
    let answer = || ports.map(|port| get(port).is_ok());
    scenario.until("those that are left are served", || answer() == [true, false, true, true]);
    scenario.until_metric("nodegate_haproxy_pending", 0.0);
    let (took, made) = (began.elapsed(), scenario.reloads() - before);
    assert!(made <= 2 + took.as_secs() / 2, "{made} reloads in {took:?}\n{}", scenario.log());
    for traffic in traffic {
        traffic.none_lost(&scenario);
    }
}
