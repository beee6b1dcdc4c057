//! The first answer of an agent is correct, and it comes even when the API server can't be reached.

use super::lab::Lab;
use nodegate_testbed::network::proxy::ProxyMode;
use nodegate_testbed::watching::{Watching as _, seen};
use std::time::{Duration, Instant};

/// A long startup grace. An API server that is far away or issues credentials slowly may need longer than the
/// default, and these tests are about the content of the first answer, not about its time.
const PATIENT: &str = "--startup-grace=30s";

#[test]
fn a_ready_node_is_ready_from_the_first_answer() {
    is_ready_at_first(&Lab::start());
}

pub(crate) fn is_ready_at_first(lab: &Lab) {
    let started = Instant::now();
    let agent = lab.agent(&[PATIENT]);
    let first = agent.health();
    assert!(first.status == 200 && !first.is_stale(), "the first answer was {} {}", first.status, first.body);
    seen(
        "first answer, ready node",
        &format!("200, not stale, {} ms after the start", started.elapsed().as_millis()),
    );
}

#[test]
fn a_cordoned_node_is_drained_from_the_first_answer() {
    let lab = Lab::start();
    let _cordon = lab.kubectl.cordon();
    for _ in 0..10 {
        let agent = lab.agent(&[PATIENT]);
        for ask in 0..90 {
            let reply = agent.health();
            let reason = reply.reason();
            assert!(
                reply.status == 503 && reason.as_deref() == Some("Unschedulable") && !reply.is_stale(),
                "answer {ask} was {} {}",
                reply.status,
                reply.body
            );
        }
        assert_eq!(agent.logged("the cache is stale"), 0, "{}", agent.log_text());
    }
    seen(
        "first answer, cordoned node",
        "503 Unschedulable from the first answer on; 10 starts, 900 answers, no 200",
    );
}

#[test]
fn a_missing_node_is_not_ready_from_the_first_answer() {
    let lab = Lab::start();
    let agent = lab.agent_of("nodegate-e2e-no-such-node", &[PATIENT]);
    let first = agent.health();
    assert_eq!((first.status, first.reason().as_deref()), (503, Some("NodeNotFound")), "{}", first.body);
    assert_eq!(agent.get("/health?drain=404").status, 503, "NotReady is not Draining");
    seen("wrong node name", "503 NodeNotFound from the first answer on");
}

#[test]
fn an_unreachable_api_server_at_startup_fails_open() {
    let lab = Lab::start();
    lab.proxy.set(ProxyMode::Down);
    let started = Instant::now();
    let agent = lab.agent(&["--stale-after=3s"]);
    let listening = started.elapsed();
    let first = agent.health();
    assert!(first.status == 200 && first.is_stale(), "the first answer was {} {}", first.status, first.body);
    assert!(listening >= Duration::from_secs(3), "it did not wait for the API server: {listening:?}");
    assert_eq!(agent.get("/readyz").status, 200);
    agent.until_so("the warning", |agent| agent.logged("the cache is stale") > 0);

    lab.proxy.set(ProxyMode::Pass);
    let back = Instant::now();
    let ready = agent.until_ready();
    agent.until_so("the recovery in the log", |agent| agent.logged("follows the API server again") > 0);
    assert_eq!((agent.logged("the cache is stale"), agent.logged("follows the API server again")), (1, 1));
    seen(
        "API unreachable at the start",
        &format!(
            "listens after {} ms and says 200 stale; reachable, 200 fresh after {}",
            listening.as_millis(),
            ready.after(back)
        ),
    );
}
