//! The time from the start to the first answer, and the effect of signals before and after it.

use nodegate_testbed::process::{Program, proc, signal};
use nodegate_testbed::stub::{StubServer, hang};
use nodegate_testbed::{NODE, Scenario, programs, until};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Shows that the agent opens its port only with the results of all default checks, so that no flip follows.
#[test]
fn the_port_opens_with_the_first_result_of_each_check() {
    let cluster = Scenario::start();
    let late = StubServer::start(|stream| {
        sleep(Duration::from_millis(700));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    });
    let check = format!("--http-check=late={}", late.url("/"));
    let checks = "--default-checks=node_ready,http:late";
    // The agent knows the Node long before the late check has a result.
    let agent = cluster.agent(&[&check, checks]);
    let first = agent.health();
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(agent.logged("flip"), 0, "{}", agent.log_text());
    assert_eq!(agent.get("/status.json").json()["flips"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_signal_ends_an_agent_that_does_not_listen_yet() {
    let cluster = Scenario::start();
    cluster.sim.ignore_new();
    let (mut command, log) = (Command::new(programs::agent()), cluster.file("log"));
    command.args(["--stale-after=5m", "--listen-port=0"]).env("NODEGATE_AGENT_CHECK_PORT", "0");
    command.env("NODE_NAME", NODE).env("KUBECONFIG", cluster.kubeconfig());
    let mut agent = Program::start_into(&mut command, &log);
    let handles_sigterm = || proc(agent.pid()).status().unwrap().sigcgt & (1 << (15 - 1)) != 0;
    until("the agent to be ready for signals", || handles_sigterm().then_some(()));
    signal(agent.pid(), "TERM");
    let ended = until("the agent to end", || agent.ended());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(ended.success() && !log.contains("listening address"), "{ended}: {log}");
}

#[test]
fn a_second_signal_ends_a_shutdown_at_once() {
    let cluster = Scenario::start();
    let hangs = StubServer::start(hang);
    let check = format!("--http-check=hangs={}", hangs.url("/"));
    let patient = ["--check-settings=http:hangs:timeout=2m", "--shutdown-grace=5m"];
    let mut agent = cluster.agent(&[&check, patient[0], patient[1]]);
    let mut waits = TcpStream::connect(agent.address()).unwrap();
    waits.write_all(b"GET /health?check=http:hangs HTTP/1.0\r\n\r\n").unwrap();
    until("the check to hang", || (hangs.asked() > 0).then_some(()));
    agent.signal("TERM");
    until("the shutdown to begin", || {
        (agent.logged("a second signal ends the program at once") > 0).then_some(())
    });
    agent.signal("INT");
    assert_eq!(agent.wait_end().code(), Some(1), "{}", agent.log_text());
}
