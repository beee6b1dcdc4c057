//! The local checks of the real agent: their answers, when they start, and their settings.

use nodegate_testbed::network::ports;
use nodegate_testbed::programs;
use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Agent, needs_root, until};
use std::process::Command;
use std::time::Duration;

fn healthy() -> Stub {
    Stub::start(answer("200 OK", "ok"))
}

/// Starts an agent on a node with this uptime, whatever that of this machine is.
pub(crate) fn agent_on_node_up_for(uptime: Duration, args: &[String]) -> Agent {
    needs_root("a time namespace");
    let offset = uptime.as_secs().cast_signed() - this_machine_is_up_for().as_secs().cast_signed();
    let mut command = Command::new("unshare");
    command.args(["--time", &format!("--boottime={offset}"), "--fork", "--kill-child"]);
    command.arg(programs::agent()).args(args);
    Agent::launch_alone(command)
}

fn this_machine_is_up_for() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
}

/// Returns a URL without a listener.
fn closed() -> String {
    format!("http://127.0.0.1:{}/", ports::free())
}

#[test]
fn configured_checks_run_from_startup() {
    let stub = healthy();
    let url = stub.url("/");
    let eager = Agent::alone(&[format!("--http-check=web={url}"), "--background-checks=http:web".to_owned()]);
    until("a run without a request", || (stub.asked() > 0).then_some(()));
    until("its result", || {
        eager
            .metric(r#"nodegate_check_passed{check="http:web",configured="true"}"#)
            .filter(|value| *value > 0.5)
    });

    let by_default = Agent::alone(&[
        format!("--http-check=web={url}"),
        "--default-checks=node_ready,http:web".to_owned(),
        "--check-settings=http:web:interval=100ms".to_owned(),
    ]);
    let reply = by_default.wait_for("ready", |reply| reply.status == 200);
    assert_eq!(reply.json()["checks"][1]["name"], "http:web");
    stub.now(answer("500 Internal Server Error", ""));
    by_default.wait_for("not ready", |reply| reply.json()["checks"][1]["reason"] == "HTTP 500");
    assert_eq!(by_default.get("/nodecheck").body.trim(), "Down");
}

#[test]
fn on_demand_limits_the_checks_that_a_request_starts() {
    let stub = healthy();
    let web = format!("--http-check=web={}", stub.url("/"));
    let refused = |agent: &Agent, names: &[&str]| {
        let reply = agent.get(&format!("/health?check={}", names.join(",")));
        let checks = names.iter().map(|name| {
            format!(r#"{{"name":"{name}","passed":false,"reason":"Not enabled: {name}","duration_ms":0}}"#)
        });
        let checks = checks.collect::<Vec<_>>().join(",");
        let expected = format!(r#"{{"status":"not-ready","checks":[{checks}],"total_duration_ms":0}}"#);
        assert_eq!((reply.status, reply.body.trim_end()), (503, &*expected));
        let metrics = agent.get("/metrics").body;
        assert!(names.iter().all(|name| !metrics.contains(&format!("check=\"{name}\""))), "{metrics}");
    };
    let none = Agent::alone(&[web.as_str(), "--on-demand=none"]);
    refused(&none, &["http:web", "kubelet", "network"]);
    assert_eq!(none.get("/health?check=node_ready,custom_conditions").status, 200, "from memory, always");
    refused(&none, &["http:web"]);
    assert_eq!(stub.asked(), 0);

    let own = Agent::alone(&[web.as_str(), "--on-demand=http:web"]);
    own.wait_passes("http:web");
    refused(&own, &["kubelet"]);

    let configured =
        Agent::alone(&[web.as_str(), "--on-demand=none", "--default-checks=node_ready,http:web"]);
    configured.wait_passes("http:web");
    assert_eq!(configured.health().status, 200);
    refused(&configured, &["kubelet"]);
}

#[test]
fn settings_from_the_environment_are_separated_by_semicolons() {
    let stub = healthy();
    let mut command = Command::new(programs::agent());
    let urls = format!("a={};b={}", stub.url("/a"), closed());
    command.env("NODEGATE_HTTP_CHECK", urls);
    command.env("NODEGATE_CHECK_SETTINGS", "http:a:interval=100ms;http:b:interval=100ms,timeout=1s");
    let agent = Agent::launch_alone(command);
    agent.wait_passes("http:a");
    agent.wait_fails("http:b", "ConnectionRefused");
}

pub(crate) const ELIGIBLE: &str = r#"{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T03:04:05Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}"#;

pub(crate) const NOT_STARTED: &str =
    "NotStarted: nothing listens yet; taken as not deployed once the node has been up for 5m";
