//! An API server that is cut off from etcd, while another one writes.

use nodegate_testbed::Agent;
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, ServerRoute, wait_watches};
use nodegate_testbed::watching::seen;
use std::time::{Duration, Instant};

/// The default of `--stale-after`, and a second.
const BOUND: Duration = Duration::from_secs(16);
/// The phase of the agent's checks differs from round to round.
const ROUNDS: usize = 2;

/// An account that may not read Leases.
pub(crate) const WITHOUT_LEASES: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: no-leases, namespace: nodegate}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodegate-no-leases}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodegate}
subjects: [{kind: ServiceAccount, name: no-leases, namespace: nodegate}]
";

/// Shows how long a real API server looks healthy without etcd: it answers from its cache, accepts watches
/// and sends bookmarks. Without a Lease, only the agent's own consistency checks detect it. Behind the Service,
/// kube-proxy sends a new connection to either API server: if the agent reaches the healthy one it sees the
/// cordon, else it is stale.
#[test]
#[ignore = "make real-cluster-test"]
fn an_api_server_cut_off_from_etcd_is_not_believed() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    cluster.apply(WITHOUT_LEASES);
    for (server, account, watches, rule) in [
        (ServerRoute::B, "nodegate", 2.0, "isolated API server, with Leases"),
        (ServerRoute::B, "no-leases", 1.0, "isolated API server, without Leases"),
        (ServerRoute::Service, "nodegate", 2.0, "one API server of two isolated"),
    ] {
        let agent = cluster.agent(REAL_NODE, server, account, &[]);
        wait_watches(&agent, watches);
        isolate(&cluster, &agent, rule);
    }
    cluster.kubectl.must(&["delete", "clusterrolebinding", "nodegate-no-leases"]);
}

fn isolate(cluster: &RealCluster, agent: &Agent, rule: &str) {
    for _ in 0..ROUNDS {
        agent.until_ready();
        let cut = cluster.cut("etcd-b");
        cluster.kubectl.must(&["cordon", REAL_NODE]);
        let cordoned = Instant::now();
        let noticed = agent.until("a 503 or a stale answer", |reply| reply.status == 503 || reply.is_stale());
        noticed.assert_within(cordoned, BOUND, agent);
        // A client that reads from the cache, as most do, sees no change.
        let cached = cluster.api.get_from_b(&format!("/api/v1/nodes/{REAL_NODE}?resourceVersion=0")).unwrap();
        assert_ne!(cached["spec"]["unschedulable"], true, "API server B has heard of the cordon: {cached}");

        let mended = cut.mend();
        let out = agent.until_reason("Unschedulable");
        cluster.kubectl.must(&["uncordon", REAL_NODE]);
        let what = if noticed.reply.is_stale() { "stale" } else { "503 Unschedulable" };
        seen(
            rule,
            &format!(
                "{what} {} after the cordon; cable mended, 503 Unschedulable after {}",
                noticed.after(cordoned),
                out.after(mended)
            ),
        );
    }
    agent.until_ready();
}
