//! The local checks of the real agent: their answers, when they start, and their settings.

use nodegate_testbed::Agent;
use nodegate_testbed::stub::{Stub, answer};

#[test]
fn on_demand_limits_the_checks_that_a_request_starts() {
    let stub = Stub::start(answer("200 OK", "ok"));
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
