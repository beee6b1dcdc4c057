//! Loss of the API server: the answers, the log and the metrics for each `--on-stale`.

use super::lab::Lab;
use crate::proxy::ProxyMode;
use nodegate_testbed::Agent;
use nodegate_testbed::watching::{Watching as _, seen};
use std::time::{Duration, Instant};

/// Short, to keep the tests short.
pub(crate) const STALE_AFTER: &str = "--stale-after=4s";
/// The bound that the documents promise: `--stale-after` + 1 s.
pub(crate) const IN_TIME: Duration = Duration::from_secs(5);

/// The first log line of an episode, and its last.
const WARNING: &str = "the cache is stale";
const RECOVERY: &str = "follows the API server again";

fn recovers(agent: &Agent) -> String {
    let back = Instant::now();
    let fresh = agent.until("a fresh answer", |reply| !reply.is_stale());
    agent.until_so("the recovery in the log", |agent| agent.logged(RECOVERY) > 0);
    agent.until_so("nodegate_cache_stale 0", |agent| agent.metric("nodegate_cache_stale") == Some(0.0));
    fresh.after(back)
}

#[test]
fn a_lost_api_server_fails_open_until_it_is_back() {
    loses_and_finds(&Lab::start());
}

pub(crate) fn loses_and_finds(lab: &Lab) {
    let agent = lab.ready_agent(&[STALE_AFTER]);
    assert_eq!(agent.metric("nodegate_cache_stale"), Some(0.0));
    let lost = Instant::now();
    lab.proxy.set(ProxyMode::Down);
    let stale = agent.until("a stale answer", |reply| {
        assert_eq!(reply.status, 200, "a lost API server takes no node out: {}", reply.body);
        reply.is_stale()
    });
    stale.assert_within(lost, IN_TIME, &agent);
    assert_eq!(agent.metric("nodegate_cache_stale"), Some(1.0));
    agent.until_so("the warning", |agent| agent.logged(WARNING) > 0);
    assert!((0..300).all(|_| agent.health().status == 200));
    assert_eq!(
        agent.logged(WARNING),
        1,
        "one warning at the transition, none per request:\n{}",
        agent.log_text()
    );

    lab.proxy.set(ProxyMode::Pass);
    let recovered = recovers(&agent);
    let logged = (agent.logged(WARNING), agent.logged(RECOVERY));
    assert_eq!(logged, (1, 1), "warnings and recoveries:\n{}", agent.log_text());
    let cordon = lab.kubectl.cordon();
    agent.until_reason("Unschedulable");
    cordon.undo();
    lab.assert_few_connections();
    seen(
        "API lost and found",
        &format!(
            "200 stale {} after the loss, one warning; back, fresh after {recovered}, one line",
            stale.after(lost)
        ),
    );
}

#[test]
fn keep_drain_holds_a_drained_node_and_no_other() {
    let lab = Lab::start();
    let args = [STALE_AFTER, "--on-stale=keep-drain"];
    let agent = lab.ready_agent(&args);
    lab.proxy.set(ProxyMode::Down);
    let open = agent.until("a stale answer", |reply| {
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.is_stale()
    });
    assert_eq!(open.reply.status, 200);
    lab.proxy.set(ProxyMode::Pass);
    recovers(&agent);

    let cordon = lab.kubectl.cordon();
    agent.until_reason("Unschedulable");
    lab.proxy.set(ProxyMode::Down);
    let lost = Instant::now();
    let held = agent.until("a stale answer that holds the drain", |reply| {
        assert_eq!((reply.status, reply.reason().as_deref()), (503, Some("Unschedulable")), "{}", reply.body);
        reply.is_stale()
    });
    held.assert_within(lost, IN_TIME, &agent);
    assert_eq!(agent.get("/health?drain=404").status, 404);
    lab.proxy.set(ProxyMode::Pass);
    cordon.undo();
    agent.until_ready();
    seen(
        "--on-stale=keep-drain",
        &format!(
            "ready node 200 stale; cordoned node 503 Unschedulable, stale after {}, 200 when uncordoned",
            held.after(lost)
        ),
    );
}

#[test]
fn on_stale_not_ready_fails_closed() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[STALE_AFTER, "--on-stale=not-ready"]);
    lab.proxy.set(ProxyMode::Down);
    let lost = Instant::now();
    let closed = agent.until("a 503", |reply| reply.status == 503);
    closed.assert_within(lost, IN_TIME, &agent);
    assert_eq!(closed.reply.reason().as_deref(), Some("CacheStale"));
    assert!(closed.reply.is_stale());
    lab.proxy.set(ProxyMode::Pass);
    let recovered = recovers(&agent);
    assert_eq!(agent.health().status, 200);
    seen(
        "--on-stale=not-ready",
        &format!("503 CacheStale {} after the loss; back, 200 after {recovered}", closed.after(lost)),
    );
}
