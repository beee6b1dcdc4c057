//! A watched Service whose slices the agent may not read. `wait/` has one whose endpoints come and go.

use nodegate_testbed::Cluster;

#[test]
fn without_rbac_for_slices_the_service_check_passes_and_the_log_says_why() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&["--stale-after=4s", "--watch-service=default/web"]);
    agent.logs_once("manifests/services.yaml");
    let check = agent.get("/health?check=service:default/web");
    assert!(check.status == 200 && check.is_stale(), "{check:?}");
    assert_eq!(agent.get("/services/default/web").status, 200);
}
