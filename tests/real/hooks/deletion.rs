//! Pods that are deleted without an eviction, on a node that goes out at the same moment.

use super::course::{Course, header};
use crate::site::{Site, WAYS, Way};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster};

/// A name, what ends the pods, and what brings the node back into service.
type Ending<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn());

/// Plain deletions need no permission: only the hook stands between a pod and SIGTERM.
#[test]
#[ignore = "make real-cluster-test"]
fn deletions_on_a_node_that_goes_out() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster);
    header();
    let names = WAYS.map(Way::name);
    let kubectl = |words: &str| {
        cluster.kubectl.must(&words.split(' ').collect::<Vec<_>>());
    };
    let node = |verb: &str, what: &str| kubectl(format!("{verb} {REAL_NODE} {what}").trim_end());
    let endings: [Ending<'_>; 3] = [
        (
            "plain delete on a cordoned node",
            &|| {
                node("cordon", "");
                site.pods.delete(&names);
            },
            &|| node("uncordon", ""),
        ),
        (
            // As Karpenter does when a NodeClaim's terminationGracePeriod is over.
            "forced expiry",
            &|| {
                node("taint node", "karpenter.sh/disrupted:NoSchedule");
                kubectl("--namespace=pool delete pod plain held --grace-period=45 --wait=false");
            },
            &|| node("taint node", "karpenter.sh/disrupted-"),
        ),
        (
            "NoExecute taint",
            &|| node("taint node", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
            &|| node("taint node", "node.kubernetes.io/out-of-service-"),
        ),
    ];
    for (what, end, undo) in endings {
        let course = Course::of(&site, end, Course::acknowledged_and_pods_ended);
        course.held_until_acknowledged(what, course.report(what, &site));
        assert_eq!(course.agent, None, "{what}: the agent has ended, too");
        undo();
        site.start_again();
        site.wait_in_service();
    }
}
