//! The table of readiness rules.

use crate::scenario::{broken, condition, facts as with_ready, ready, taint};
use nodegate_readiness::{ConditionStatus, DrainSignals, Node, NodeFacts, OnStale, Outcome, Policy, Reason};

fn fail(reason: &str) -> Outcome {
    Outcome::Fail(Reason::parse(reason))
}

fn draining(reason: &str) -> Outcome {
    Outcome::Draining(Reason::parse(reason))
}

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

#[test]
fn the_table_of_the_design() {
    let cordoned = NodeFacts { unschedulable: true, ..ready() };
    let deleting = NodeFacts { deleting: true, ..ready() };
    let tainted = |key: &str| NodeFacts { taints: [taint(key)].into(), ..ready() };
    let labelled = |key: &str| NodeFacts { labels: [(key.to_owned(), String::new())].into(), ..ready() };
    let cases = [
        (ready(), Outcome::Pass),
        (broken(), fail("KubeletNotReady")),
        (with_ready(ConditionStatus::Unknown, "NodeStatusUnknown"), fail("NodeStatusUnknown")),
        (with_ready(ConditionStatus::False, ""), fail("Ready=False")),
        (NodeFacts::default(), fail("ReadyConditionMissing")),
        (cordoned, draining("Unschedulable")),
        (deleting, draining("Deleting")),
        (tainted("ToBeDeletedByClusterAutoscaler"), draining("Taint:ToBeDeletedByClusterAutoscaler")),
        (tainted("karpenter.sh/disrupted"), draining("Taint:karpenter.sh/disrupted")),
        (tainted("karpenter.sh/disruption=disrupting:NoSchedule"), draining("Taint:karpenter.sh/disruption")),
        (tainted("karpenter.sh/disruption=other:NoSchedule"), Outcome::Pass),
        (tainted("node.kubernetes.io/out-of-service"), draining("Taint:node.kubernetes.io/out-of-service")),
        (tainted("node-role.kubernetes.io/control-plane"), Outcome::Pass),
        (labelled(EXCLUDE), draining("ExcludedFromLoadBalancers")),
        (labelled("zone"), Outcome::Pass),
        (NodeFacts { deleting: true, ..broken() }, fail("KubeletNotReady")),
    ];
    let policy = Policy::default();
    for (facts, expected) in cases {
        assert_eq!(policy.node_ready(&Node::Present(facts.clone()), false), expected, "{facts:?}");
    }
    assert_eq!(policy.node_ready(&Node::Absent, false), fail("NodeNotFound"));
}

#[test]
fn the_meaning_of_a_stale_cache_is_a_setting() {
    let cordoned = Node::Present(NodeFacts { unschedulable: true, ..ready() });
    let broken = Node::Present(broken());
    let stale = |on_stale, node: &Node| Policy { on_stale, ..Policy::default() }.node_ready(node, true);
    for node in [&cordoned, &broken, &Node::Absent, &Node::Unknown] {
        assert_eq!(stale(OnStale::Ready, node), Outcome::Pass);
        assert_eq!(stale(OnStale::NotReady, node), fail("CacheStale"));
    }
    assert_eq!(stale(OnStale::KeepDrain, &cordoned), draining("Unschedulable"));
    for node in [&broken, &Node::Absent, &Node::Unknown] {
        assert_eq!(stale(OnStale::KeepDrain, node), Outcome::Pass);
    }
}

#[test]
fn which_signals_drain_is_a_setting() {
    let text = str::to_owned;
    let taints = "example.com/out=disk:NoSchedule example.com/out=disk:NoExecute soft:PreferNoSchedule";
    let facts = NodeFacts {
        unschedulable: true,
        labels: [(text("maintenance"), text("planned")), (text("zone"), String::new())].into(),
        taints: taints.split(' ').map(taint).collect(),
        annotations: [(text("example.com/reboot"), text("2026-11-23T17:00:00Z"))].into(),
        conditions: vec![
            condition("Ready", ConditionStatus::True, "KubeletReady"),
            condition("DrainInProgress", ConditionStatus::True, "KubectlDrain"),
            condition("MaintenanceInProgress", ConditionStatus::False, ""),
            condition("Healthy", ConditionStatus::Unknown, ""),
        ],
        ..NodeFacts::default()
    };
    let with = |list: &str| {
        let policy = Policy { drain_on: list.parse::<DrainSignals>().unwrap(), ..Policy::default() };
        policy.node_ready(&Node::Present(facts.clone()), false)
    };
    for (reason, lists) in [
        ("Unschedulable", "deleting,unschedulable"),
        ("Label:maintenance", "label:maintenance label:maintenance=planned"),
        ("Label:zone", "label:zone="),
        (
            "Taint:example.com/out",
            "taint:example.com/out taint:example.com/out=disk taint:example.com/out:NoExecute taint:example.com/* \
             taint:example.com/out=disk:NoSchedule taint:example.com/o*=disk:NoSchedule",
        ),
        ("Taint:soft", "taint:soft="),
        (
            "Annotation:example.com/reboot",
            "annotation:example.com/reboot annotation:example.com/reboot=2026-11-23T17:00:00Z",
        ),
        ("Condition:DrainInProgress", "lifecycle condition:DrainInProgress"),
        ("Condition:MaintenanceInProgress=False", "condition:MaintenanceInProgress=False"),
        ("Condition:Healthy=Unknown", "condition:Healthy=Unknown"),
    ] {
        for list in lists.split(' ') {
            assert_eq!(with(list), draining(reason), "{list}");
        }
    }
    let others = "none deleting label:maintenance=done label:maintenance= label:missing=planned taint:example.org/* \
                  taint:example.com/*:PreferNoSchedule annotation:example.com/reboot=now annotation:example.com/other \
                  taint:example.com/out= taint:example.com/out=memory taint:example.com/out:PreferNoSchedule \
                  taint:soft=x:PreferNoSchedule condition:MaintenanceInProgress condition:DrainInProgress=Unknown \
                  condition:Missing=False";
    for list in others.split(' ') {
        assert_eq!(with(list), Outcome::Pass, "{list}");
    }
}

#[test]
fn custom_conditions_fail_on_the_configured_status() {
    let conditions = vec![
        condition("DiskPressure", ConditionStatus::True, "KubeletHasDiskPressure"),
        condition("PIDPressure", ConditionStatus::False, "KubeletHasSufficientPID"),
        condition("StorageOk", ConditionStatus::False, ""),
    ];
    let node = Node::Present(NodeFacts { conditions, ..NodeFacts::default() });
    let with = |list: &str| Policy { conditions: list.parse().unwrap(), ..Policy::default() };
    let closed = Policy { on_stale: OnStale::NotReady, ..Policy::default() };
    let both = "DiskPressure: KubeletHasDiskPressure, StorageOk=False";
    for (policy, stale, outcome) in [
        (Policy::default(), false, fail("DiskPressure: KubeletHasDiskPressure")),
        (with("PIDPressure,Missing"), false, Outcome::Pass),
        (with("DiskPressure,StorageOk=False"), false, fail(both)),
        (Policy::default(), true, Outcome::Pass),
        (closed, true, fail("CacheStale")),
    ] {
        assert_eq!(policy.custom_conditions(&node, stale), outcome, "{policy:?}, stale: {stale}");
    }
}
