//! A watched Service, with the real agent and an `EndpointSlice` made by kubectl.

use nodegate_testbed::{Cluster, NODE, until};
use serde_json::json;

const ARGS: &[&str] = &["--stale-after=4s", "--watch-service=default/web"];
const PATH: &str = "/services/default/web";
const CHECK: &str = "/health?check=service:default/web";

#[test]
fn ready_endpoints_on_this_node_are_counted_until_they_terminate() {
    let cluster = Cluster::start();
    cluster.allow_services();
    let agent = cluster.ready_agent(ARGS);
    // The control plane writes these conditions for a terminating pod: not ready, and serving while its probe
    // passes.
    for (ready, count, status) in [(true, 1, 200), (false, 0, 503)] {
        let endpoint = |address: &str, node: &str| {
            let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
            json!({"addresses": [address], "nodeName": node, "conditions": conditions})
        };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-a", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
            "endpoints": [endpoint("10.0.0.1", NODE), endpoint("10.0.0.2", "n2")],
        });
        let file = cluster.dir.path().join("slice.json");
        std::fs::write(&file, slice.to_string()).unwrap();
        cluster.kubectl(&["apply", "--validate=false", "-f", file.to_str().unwrap()]);
        let reply = until("the count, and time for kube-proxy's rules", || {
            let reply = agent.get(PATH);
            (reply.json()["localEndpoints"] == count && reply.status == status).then_some(reply)
        });
        assert_eq!(reply.header("X-Load-Balancing-Endpoint-Weight"), Some(&*count.to_string()));
        assert_eq!(agent.get(CHECK).status, status);
    }
    assert_eq!(agent.get(CHECK).reason().as_deref(), Some("NoLocalEndpoints"));
    assert_eq!(agent.get("/services/default/other").status, 404);
    assert_eq!(agent.health().status, 200, "the node is another matter");
}

#[test]
fn without_rbac_for_slices_the_service_check_passes_and_the_log_says_why() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(ARGS);
    agent.logs_once("manifests/services.yaml");
    let check = agent.get(CHECK);
    assert!(check.status == 200 && check.is_stale(), "{check:?}");
    assert_eq!(agent.get(PATH).status, 200);
}
