//! Pods that are deleted without an eviction, on a node that goes out at the same moment.

use super::course::{Course, header};
use crate::scenario::Scenario;
use nodegate_testbed::real_cluster::RealCluster;

/// A name, what ends the pods, and what brings the node back into service: words for kubectl.
const ENDINGS: [(&str, &[&str], &str); 3] = [
    (
        "plain delete on a cordoned node",
        &["cordon real-node", "--namespace=pool delete pod plain held --wait=false"],
        "uncordon real-node",
    ),
    // As Karpenter does when a NodeClaim's terminationGracePeriod is over.
    (
        "forced expiry",
        &[
            "taint node real-node karpenter.sh/disrupted:NoSchedule",
            "--namespace=pool delete pod plain held --grace-period=45 --wait=false",
        ],
        "taint node real-node karpenter.sh/disrupted-",
    ),
    (
        "NoExecute taint",
        &["taint node real-node node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"],
        "taint node real-node node.kubernetes.io/out-of-service-",
    ),
];

/// Plain deletions need no permission: only the hook stands between a pod and SIGTERM.
#[test]
#[ignore = "make real-cluster-test"]
fn deletions_on_a_node_that_goes_out() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    header();
    let kubectl = |words: &str| drop(cluster.kubectl.must(&words.split(' ').collect::<Vec<_>>()));
    for (what, end, undo) in ENDINGS {
        let end = || end.iter().for_each(|words| kubectl(words));
        let course = Course::of(&scenario, end, Course::acknowledged_and_pods_ended);
        course.held_until_acknowledged(what, course.report(what, &scenario));
        assert_eq!(course.agent, None, "{what}: the agent has ended, too");
        kubectl(undo);
        scenario.start_again();
        scenario.wait_in_service();
    }
}
