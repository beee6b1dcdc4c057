//! Tests of a kube-proxy that starts, hangs and ends.

use crate::support::{Scenario, checks, fail, log_of, text};
use nodegate_local_checks::HostRoot;
use nodegate_readiness::Outcome;
use nodegate_testbed::network::ports;
use nodegate_testbed::stub::{StubServer, hang};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::runtime::Handle;

const HEALTHY: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
    {\"nodeEligible\":true,\"healthy\":true,\"status\":{\"IPv4\":{\"healthy\":true}}}";

fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, ports::free()).into()
}

fn watching(address: SocketAddr, timeout: &str) -> Scenario {
    let setting = format!("kube_proxy:url=http://{address}/healthz,interval=100ms,timeout={timeout}");
    Scenario::start(&checks(&setting, &[], &HostRoot::default()), &Handle::current(), &["kube_proxy"])
}

async fn some_runs_of(scenario: &Scenario) {
    let at = |scenario: &Scenario| scenario.result("kube_proxy").unwrap().at;
    let first = at(scenario);
    scenario.until("some more runs", |scenario| at(scenario).since(first).as_millis() > 300).await;
}

/// Returns the outcome for a port that was never open, on this machine.
fn never_there() -> Outcome {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    if seconds >= 300.0 {
        return Outcome::Pass;
    }
    fail("NotStarted: nothing listens yet; taken as not deployed once the node has been up for 5m")
}

#[tokio::test]
async fn a_port_that_was_never_open_is_no_kube_proxy_and_one_that_was_is_missed() {
    let (log, _guard) = log_of();
    let address = free_address();
    let scenario = watching(address, "30s");
    scenario.runner.eager_ready().await;
    assert_eq!(scenario.outcome("kube_proxy"), Some(never_there()));
    some_runs_of(&scenario).await;
    assert_eq!(scenario.outcome("kube_proxy"), Some(never_there()));
    assert_eq!(text(&log).matches("not deployed").count(), 1, "one warning, not one a run");

    let running = StubServer::start_at(address, |_, stream| drop(stream.write_all(HEALTHY.as_bytes())));
    some_runs_of(&scenario).await;
    assert_eq!(scenario.outcome("kube_proxy"), Some(Outcome::Pass));
    running.stop();
    until_missed(&scenario).await;
    assert_eq!(text(&log).matches("not deployed").count(), 1);
}

async fn until_missed(scenario: &Scenario) {
    let refused = Some(fail("ConnectionRefused"));
    scenario.until("it is missed", |scenario| scenario.outcome("kube_proxy") == refused).await;
}

#[tokio::test]
async fn one_that_only_ever_hung_was_there_too() {
    let address = free_address();
    let silent = StubServer::start_at(address, |_, stream| hang(stream));
    let scenario = watching(address, "100ms");
    scenario.runner.eager_ready().await;
    assert_eq!(scenario.outcome("kube_proxy"), Some(fail("Timeout after 100ms")));
    silent.stop();
    until_missed(&scenario).await;
}
