//! The lock on the configuration, and the hosts on which HAProxy can load it.

use crate::Row;
use crate::lab::{Lab, get};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_program_does_not_write_what_the_first_one_keeps() {
    second_writer().await;
}

pub(crate) async fn second_writer() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let written = std::fs::read(&lab.config).unwrap();
    let first = lab.program.take().unwrap();
    let checks = std::mem::replace(&mut lab.check_port, ports::free());
    lab.start_program(&["--once"]);
    let status = lab.program.take().unwrap().wait().await.unwrap();
    assert_eq!(status.code(), Some(1), "{}", lab.log());
    assert!(lab.log().contains("another nodegate-haproxy writes"), "{}", lab.log());
    assert_eq!(std::fs::read(&lab.config).unwrap(), written, "{}", lab.log());
    (lab.program, lab.check_port) = (Some(first), checks);
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("the first one goes on", async || get(next).is_ok() && get(port).is_ok()).await;
    // A killed program blocks no other, and its remaining files are removed.
    lab.program.take().unwrap().kill().await.unwrap();
    let left = lab.config.with_file_name(".haproxy.cfg.nodegate-new-1");
    std::fs::write(&left, "half of a").unwrap();
    lab.once(&[]).await;
    assert!(!left.exists(), "{}", lab.log());
    Row {
        what: "two programs, one file",
        result: "the second ends with a word; the file is the first's".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_without_the_address_says_what_it_lacks() {
    standby().await;
}

pub(crate) async fn standby() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    lab.program.take().unwrap().kill().await.unwrap();
    let old = std::fs::read(&lab.config).unwrap();
    let running = lab.processes_now().await;
    let traffic = Traffic::start(port);
    // An address for documentation, which no host has.
    lab.arguments = vec!["--bind".to_owned(), "127.0.0.1,192.0.2.1".to_owned()];
    lab.start_program(&[]);
    lab.until("it is told", async || lab.log().contains("net.ipv4.ip_nonlocal_bind")).await;
    lab.until("it is counted", async || lab.metric("nodegate_haproxy_problems{kind=\"bind\"}") == Some(1.0))
        .await;
    lab.until("nothing is changed", async || {
        lab.metric("nodegate_haproxy_failures_total{kind=\"bind\"}").is_some()
    })
    .await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{}", lab.log());
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    assert_eq!(lab.processes_now().await, running, "no reload was tried\n{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("names the address and the sysctl; no reload is tried; {good} requests, 0 lost");
    Row { what: "--bind with an address of another host", result }
}
