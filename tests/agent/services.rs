//! An agent without the rights to watch what it could do without. `wait/` has a Service whose endpoints come and go.

use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::Scenario;

#[test]
fn without_rights_for_slices_and_leases_the_agent_goes_on_and_says_so_once() {
    let cluster = Scenario::start();
    cluster.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    let agent = cluster.ready_agent(&["--stale-after=4s", "--watch-service=default/web"]);
    agent.logs_once("manifests/services.yaml");
    let check = agent.get("/health?check=service:default/web");
    assert!(check.status == 200 && check.is_stale(), "{check:?}");
    assert_eq!(agent.get("/services/default/web").status, 200);
    agent.logs_once("not allowed to watch the node's Lease");
}
