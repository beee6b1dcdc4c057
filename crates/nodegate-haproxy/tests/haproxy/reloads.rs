//! Every change is a reload: paced, proven, and without a lost request.

use crate::lab::{Lab, get, local, node_name};
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
        lab.set_share(0, 50 + round % 50);
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
        lab.set_share(0, 1 + round);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let backend = format!("nodegate_default_web_{port}");
    lab.until("the last one is applied", async || lab.weight(&backend, &node_name(0)).await == Some(200))
        .await;
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
    lab.set_share(0, 7);
    lab.until_logged("--reload-command failed: no reload today").await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "the old file is back");
    assert!(get(port).is_ok() && lab.is_ready(), "{}", lab.log());
    std::fs::write(&script, &reload).unwrap();
    let backend = format!("nodegate_default_web_{port}");
    lab.until("it is tried again", async || lab.weight(&backend, &node_name(0)).await == Some(7)).await;
}
