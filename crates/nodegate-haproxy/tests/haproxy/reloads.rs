//! A change of the file is a reload: paced, proven, and without a lost request. A change of weights is none.

use crate::lab::{Lab, get, local};
use crate::servers::Traffic;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The number of reloads that a connection certainly outlasts: fewer than `mworker-max-reloads`.
const HELD: u64 = 40;
/// The most old workers: `mworker-max-reloads`, and the one that is being ended.
const MOST_OLD: usize = 51;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_over_reloads() {
    under_traffic(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn no_request_is_lost_over_many_reloads() {
    under_traffic(200).await;
}

/// Reloads this often while clients send 500 requests each time. Before each reload a client opens a connection and
/// keeps it.
async fn under_traffic(reloads: u64) {
    let mut lab = Lab::new(2).await;
    lab.reload_interval = "0s";
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let began = lab.reloads().await;
    let (mut held, mut most_old) = (Vec::new(), 0);
    for round in 0..reloads {
        held.push(TcpStream::connect(local(port)).unwrap());
        let before = lab.reloads().await;
        lab.change(round);
        lab.until_reloaded(before).await;
        let due = 500 * usize::try_from(round + 1).unwrap();
        lab.until("requests are answered", async || traffic.answered() >= due).await;
        most_old = most_old.max(lab.old_workers().await);
        if round == (reloads - 1).min(HELD) {
            // The connection from before the first reload still works.
            held[0].write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            held[0].read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    let made = lab.reloads().await - began;
    traffic.none_lost(&lab);
    assert!(made >= reloads && most_old <= MOST_OLD, "{made} reloads, {most_old} old workers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_changes_is_a_few_reloads() {
    let mut lab = Lab::new(2).await;
    lab.reload_interval = "2s";
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let before = lab.reloads().await;
    let began = std::time::Instant::now();
    for round in 0..200_u64 {
        lab.change(round);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let is_applied = async || std::fs::read_to_string(&lab.config).unwrap().contains("balance leastconn");
    lab.until("the last one is applied", is_applied).await;
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    let (took, made) = (began.elapsed(), lab.reloads().await - before);
    assert!(made <= 2 + took.as_secs() / 2, "{made} reloads in {took:?}\n{}", lab.log());
    traffic.none_lost(&lab);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_reloads_and_its_failure_changes_nothing() {
    let mut lab = Lab::new(2).await;
    let script = lab.dir.path().join("reload");
    let reload = format!(
        "import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect('{}')\ns.sendall(b'reload\\n')\ns.shutdown(1)\n\
         while s.recv(4096): pass\n",
        lab.master.display()
    );
    std::fs::write(&script, &reload).unwrap();
    lab.arguments = vec![format!("--reload-command=python3 {}", script.display())];
    let port = lab.publish().await;
    let old = std::fs::read(&lab.config).unwrap();
    std::fs::write(&script, "raise SystemExit('no reload today')\n").unwrap();
    lab.change(0);
    lab.until_logged("--reload-command failed: no reload today").await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "the old file is back");
    assert!(get(port).is_ok() && lab.is_ready(), "{}", lab.log());
    std::fs::write(&script, &reload).unwrap();
    lab.until_metric("nodegate_haproxy_frontends", 2.0).await;
}
