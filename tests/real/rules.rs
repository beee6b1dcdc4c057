//! The way through the whole program on a real cluster: a cordon by kubectl, and a lost API server.

use nodegate_testbed::Agent;
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, ServerRoute};
use nodegate_testbed::watching::seen;
use std::time::{Duration, Instant};

/// Short, to keep the test short.
const STALE_AFTER: &str = "--stale-after=4s";
/// `--stale-after` and a second.
const BOUND: Duration = Duration::from_secs(5);

#[test]
#[ignore = "make real-cluster-test"]
fn a_cordon_and_a_lost_api_server() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let agent = cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", &[STALE_AFTER]);
    agent.until_ready();
    follows_cordons(&cluster, &agent);

    let cut = cluster.cut("agent");
    let lost = cut.since;
    let stale = agent.until("a stale answer", |reply| {
        assert_eq!(reply.status, 200, "a lost API server takes no node out: {}", reply.body);
        reply.is_stale()
    });
    stale.assert_within(lost, BOUND, &agent);
    let mended = cut.mend();
    let back = agent.until_ready().after(mended);
    seen("API server lost", &format!("200 stale after {}; mended, fresh after {back}", stale.after(lost)));
    follows_cordons(&cluster, &agent);
}

fn follows_cordons(cluster: &RealCluster, agent: &Agent) {
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    let cordoned = Instant::now();
    let out = agent.until_reason("Unschedulable").after(cordoned);
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    let undone = Instant::now();
    let back = agent.until_ready().after(undone);
    seen("cordon", &format!("503 {out} after kubectl had done it; undone, 200 after {back}"));
}
