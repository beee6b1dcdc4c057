//! The way through the whole program on any cluster, with the agent's RBAC rules and `kubectl` for the operator's
//! changes. A proxy between the agent and the API server takes the network away, so the tests need no privileges.

// `cargo test --test cluster e2e` runs them against simulated clusters, one for each test. `make real-cluster-test
// KUBECONFIG=… NODE=…` runs them against a real one: it cordons that node, and uncordons it after each test.
//
// | variable | meaning |
// |---|---|
// | `NODEGATE_E2E_NODE` | the node to work on; set by `make real-cluster-test NODE=…`. Without it no real cluster is touched |
// | `KUBECONFIG` | the caller's credentials: may cordon the node |
// | `AGENT_KUBECONFIG` | the agent's credentials; else a token of ServiceAccount nodegate/nodegate if the caller gets one, else the caller's |

mod kubeconfig;
mod lab;
mod real;

use lab::Lab;
use nodegate_testbed::Agent;
use nodegate_testbed::watching::{Watching as _, seen};
use std::time::{Duration, Instant};

/// Short, to keep the tests short.
const STALE_AFTER: &str = "--stale-after=4s";
/// The bound that the documents promise: `--stale-after` + 1 s.
const IN_TIME: Duration = Duration::from_secs(5);
/// The first log line of a time in which the cache is stale, and its last.
const WARNING: &str = "the cache is stale";
const RECOVERY: &str = "follows the API server again";

#[test]
fn a_cordon_takes_the_node_out_and_its_end_brings_it_back() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    let answers = || {
        let (drain, check) = (agent.get("/health?drain=404"), agent.get("/nodecheck"));
        let word = drain.json()["status"].as_str().unwrap_or_default().to_owned();
        format!("?drain=404 {} {word}, /nodecheck {} {}", drain.status, check.status, check.body.trim())
    };
    let ready = answers();
    assert_eq!(ready, "?drain=404 200 ready, /nodecheck 200 OK");
    let cordon = lab.cordon();
    let out = agent.until_reason("Unschedulable");
    assert_eq!(
        out.reply.body,
        r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#
    );
    let (when, cordoned) = (out.after(cordon.done), answers());
    assert_eq!(cordoned, "?drain=404 404 draining, /nodecheck 503 Down");
    drop(cordon);
    let undone = Instant::now();
    let back = agent.until_ready().after(undone);
    assert_eq!(answers(), ready);
    assert_eq!(agent.get("/nodename").body.trim(), format!("Node: \"{}\"", lab.node));
    seen("cordon", &format!("503 {when} after kubectl had done it; undone, 200 after {back}"));
}

#[test]
fn a_lost_api_server_means_what_on_stale_says_until_it_is_back() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[STALE_AFTER]);
    let closed = lab.ready_agent(&[STALE_AFTER, "--on-stale=not-ready"]);
    assert_eq!(agent.metric("nodegate_cache_stale"), Some(0.0));
    let lost = Instant::now();
    lab.proxy.set_down(true);
    let stale = agent.until("a stale answer", |reply| {
        assert_eq!(reply.status, 200, "a lost API server takes no node out: {}", reply.body);
        reply.is_stale()
    });
    stale.assert_within(lost, IN_TIME, &agent);
    let out = closed.until("a 503", |reply| reply.status == 503);
    assert_eq!((out.reply.reason().as_deref(), out.reply.is_stale()), (Some("CacheStale"), true));
    assert_eq!(agent.metric("nodegate_cache_stale"), Some(1.0));
    agent.until_so("the warning", |agent| agent.logged(WARNING) > 0);
    assert!((0..300).all(|_| agent.health().status == 200));
    assert_eq!(agent.logged(WARNING), 1, "one, and none per request:\n{}", agent.log_text());

    lab.proxy.set_down(false);
    let back = Instant::now();
    let recovered = agent.until("a fresh answer", |reply| !reply.is_stale()).after(back);
    agent.until_so("the recovery in the log", |agent| agent.logged(RECOVERY) > 0);
    agent.until_so("nodegate_cache_stale 0", |agent| agent.metric("nodegate_cache_stale") == Some(0.0));
    let logged = (agent.logged(WARNING), agent.logged(RECOVERY));
    assert_eq!(logged, (1, 1), "warnings and recoveries:\n{}", agent.log_text());
    closed.until_ready();
    let cordon = lab.cordon();
    agent.until_reason("Unschedulable");
    drop(cordon);
    let when = stale.after(lost);
    seen("API lost and found", &format!("200 stale {when} after the loss; back, fresh after {recovered}"));
}

#[test]
fn two_thousand_probes_cost_the_api_server_nothing() {
    const PROBES: u32 = 2_000;
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    let watches =
        |agent: &Agent| agent.metric(r#"nodegate_api_requests_total{verb="watch",code="200"}"#) >= Some(2.0);
    agent.until_so("the watches of the Node and of the Lease", watches);
    // Requests by the agent's count, connections and bytes by the proxy's.
    let cost = || {
        let requests = agent.metric_sum("nodegate_api_requests_total");
        (requests, lab.proxy.accepted(), lab.proxy.bytes_to_server())
    };
    // The agent's own rare requests may fall into one series of probes, but not into each.
    let costs_nothing = |_: &u32| {
        let before = cost();
        assert!((0..PROBES).all(|_| agent.health().status == 200));
        cost() == before
    };
    let series = (1..=3).find(costs_nothing);
    assert!(
        series.is_some(),
        "three series of {PROBES} probes did not go by without a request: {:?}",
        cost()
    );
    let peak = lab.proxy.peak();
    assert!(peak <= 3, "the agent held {peak} API connections at once");
    seen("no API request per probe", &format!("{:?} before and after {PROBES} probes", cost()));
}
