//! Drains with the real kubectl.

use crate::crowd::{self, Behaviour, sends};
use crate::scenario::{Said, Scenario, counted, out, prober, ready, says};
use nodegate_kube_sim::{ADMIN_TOKEN, Effect, FaultScope, Sim};
use nodegate_testbed::{pods, process, until};
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Default)]
pub(crate) struct DrainSetup {
    /// The number of balancers that probe and get the new verdict.
    pub(crate) acknowledged: usize,
    /// The number of balancers that probe and have not got the new verdict.
    pub(crate) unresponsive: usize,
    /// The sessions on `--traffic-port` at first; one of them ends every 100 ms once the node is out.
    pub(crate) sessions: Option<u64>,
    pub(crate) has_budget: bool,
}

pub(crate) const RESPONSIVE: DrainSetup =
    DrainSetup { acknowledged: 1, unresponsive: 0, sessions: None, has_budget: false };
pub(crate) const UNRESPONSIVE: DrainSetup = DrainSetup { unresponsive: 1, ..RESPONSIVE };

/// Returns an agent that follows its Node in kube-sim; its balancers probe every 50 ms.
pub(crate) fn follows(sim: &Sim, node: &'static str, setup: DrainSetup) -> Behaviour {
    let (sim, turned) = (sim.clone(), Mutex::new((false, None::<Instant>)));
    crowd::says(move || {
        let cordoned = sim.node(node).is_some_and(|node| node["spec"]["unschedulable"] == true);
        let mut turned = turned.lock().unwrap();
        if turned.0 != cordoned {
            *turned = (cordoned, Some(Instant::now()));
        }
        said(node, cordoned, turned.1.map_or(Duration::from_mins(10), |at| at.elapsed()), setup).to_string()
    })
}

fn said(node: &str, cordoned: bool, since: Duration, setup: DrainSetup) -> Value {
    let mut status = if cordoned { out(node, "draining", "Unschedulable", 0) } else { ready(node) };
    let (verdict, other) = if cordoned { ("draining", "ready") } else { ("ready", "draining") };
    let knows = since > Duration::from_millis(200);
    let asks = |number: usize, verdict: &str, knows: bool| {
        prober(&format!("10.0.0.{number}"), verdict, 4, Some(knows))
    };
    let told = (1..=setup.acknowledged).map(|number| asks(number, verdict, knows));
    let unresponsive = (1..=setup.unresponsive).map(|number| asks(number + 100, other, false));
    let probers: Vec<Value> = told.chain(unresponsive).collect();
    let missing = probers.iter().filter(|prober| prober["acknowledged"] == false);
    let missing: Vec<Value> = missing
        .map(|one| json!({"prober": one["address"], "question": "/health", "why": "got it 0 of 4 times"}))
        .collect();
    let all = missing.is_empty();
    let drain = &mut status["drain"];
    (drain["acknowledged"], drain["acknowledged_ready"]) = (json!(cordoned && all), json!(!cordoned && all));
    drain["waiting_for"] = json!(missing);
    if probers.is_empty() {
        (drain["not_known"], drain["not_known_code"]) =
            (json!("no balancer probes this agent regularly"), json!("no_probers"));
    }
    if let Some(sessions) = setup.sessions {
        let ended = if cordoned { u64::try_from(since.as_millis() / 100).unwrap() } else { 0 };
        let left = sessions.saturating_sub(ended);
        drain["traffic"] = json!({"ports": [443], "established": left, "age_ms": 100});
    }
    if setup.has_budget {
        status["max_drained"] = json!(50);
    }
    status["probers"] = json!(probers);
    counted(status)
}

/// Creates a cluster whose agents follow their nodes, with a pod of a `ReplicaSet` on the first node.
pub(crate) fn cluster(setup: DrainSetup, nodes: &[&'static str]) -> Scenario {
    let scenario = Scenario::new(nodes.iter().map(|node| (*node, says(&ready(node)))));
    for node in nodes {
        scenario.crowd.now(node, follows(&scenario.sim, node, setup));
    }
    let metadata = json!({"name": "nodegate", "namespace": "nodegate"});
    scenario.sim.apply(json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": metadata})).unwrap();
    pods::create(&scenario.sim, nodes[0], "app", "app");
    scenario
}

pub(crate) fn add_bare_pod(scenario: &Scenario) {
    pods::create(&scenario.sim, "worker-1", "bare", "app");
    let mut pod = scenario.sim.get("pods", "default", "bare").unwrap();
    pod["metadata"]["ownerReferences"] = json!([]);
    scenario.sim.apply(pod).unwrap();
}

pub(crate) fn is_cordoned(scenario: &Scenario, node: &str) -> bool {
    scenario.sim.node(node).unwrap()["spec"]["unschedulable"] == true
}

/// Returns the plugin's own lines for a node, without their seconds.
pub(crate) fn steps(said: &Said, node: &str) -> Vec<String> {
    let lines = said.out.lines().filter_map(|line| line.strip_prefix(node));
    lines.filter_map(|line| Some(line.split_once(" s  ")?.1.to_owned())).collect()
}

#[track_caller]
pub(crate) fn are_in_order(lines: &[String], beginnings: &[&str]) {
    let mut left = lines.iter();
    for beginning in beginnings {
        assert!(left.any(|line| line.starts_with(beginning)), "no {beginning:?} in its place: {lines:#?}");
    }
}

#[test]
fn pods_are_evicted_after_the_balancers_acknowledged() {
    let scenario = cluster(DrainSetup { acknowledged: 2, ..RESPONSIVE }, &["worker-1", "worker-2"]);
    let said = scenario.run(&["drain", "worker-1"]);
    said.has(0, &["evicting pod default/app"]);
    let cluster = format!("cluster: context sim, server {}", scenario.sim.url());
    assert!(said.out.starts_with(&cluster), "{said:#?}");
    let order = [
        "cordoned",
        "acknowledged  10.0.0.1 /health: ",
        "acknowledged after ",
        "kubectl drain worker-1 --ignore-daemonsets",
        "drained",
    ];
    are_in_order(&steps(&said, "worker-1"), &order);
    assert!(is_cordoned(&scenario, "worker-1") && scenario.sim.get("pods", "default", "app").is_none());
    assert!(scenario.sim.get("pods", "nodegate", "nodegate-worker-1").is_some());

    let back = scenario.run(&["uncordon", "worker-1"]);
    back.has(0, &[]);
    assert!(!is_cordoned(&scenario, "worker-1"));
    are_in_order(&steps(&back, "worker-1"), &["uncordoned", "ready after "]);
    scenario.run(&["uncordon", "worker-1"]).has(0, &["was not cordoned"]);
}

#[test]
fn a_drain_that_cant_be_acknowledged_is_refused_before_any_change() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let is_refused = |args: &[&str], why: &str| {
        let said = scenario.run(&[&["drain", "worker-1"], args].concat());
        said.has(3, &[why, "nothing was done to it"]);
        assert!(!is_cordoned(&scenario, "worker-1"));
        said
    };
    is_refused(&["--for=released"], "the agent has no --traffic-port");
    scenario.crowd.now("worker-1", follows(&scenario.sim, "worker-1", DrainSetup::default()));
    is_refused(&[], "no balancer probes this agent regularly");
    let mut full = ready("worker-1");
    (full["drain"]["not_known"], full["drain"]["not_known_code"]) =
        (json!("12 too many"), json!("overflown"));
    scenario.crowd.now("worker-1", says(&full));
    is_refused(&[], "not known whether balancers would acknowledge: 12 too many");
    scenario.crowd.now("worker-1", sends(""));
    is_refused(&["worker-2"], "its agent does not answer").has(3, &["not started: worker-2"]);
}

#[test]
fn min_ready_refuses_and_the_last_ready_node_is_a_warning() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2", "worker-3"]);
    scenario
        .run(&["drain", "worker-1", "--min-ready=3"])
        .has(1, &["refused: 2 other nodes are Ready, --min-ready=3"]);
    assert!(!is_cordoned(&scenario, "worker-1"));
    // One after the other: for the second node fewer others are Ready.
    let both = scenario.run(&["drain", "worker-1", "worker-2", "--min-ready=2"]);
    both.has(1, &["refused: 1 other node is Ready, --min-ready=2"]);
    assert!(is_cordoned(&scenario, "worker-1") && !is_cordoned(&scenario, "worker-2"), "{both:#?}");
    // A guess does not count.
    let mut stale = ready("worker-3");
    stale["cache"]["stale"] = json!(true);
    scenario.crowd.now("worker-3", says(&stale));
    scenario.run(&["drain", "worker-2"]).has(0, &["warning: no other node is Ready"]);
    // Where balancers have a pool of last resort, a drained node of such a cluster may still serve.
    for node in ["worker-2", "worker-3"] {
        scenario.crowd.now(node, says(&out(node, "draining", "ExcludedFromLoadBalancers", 7300)));
    }
    scenario
        .run(&["drain", "worker-1", "--dry-run=client"])
        .has(0, &["warning: all nodes that are left are out by the label"]);
}

#[test]
fn no_pod_is_evicted_before_every_balancer_has_acknowledged() {
    let scenario = cluster(UNRESPONSIVE, &["worker-1", "worker-2"]);
    let left = "it is left cordoned, and no pod was evicted; to undo: kubectl nodegate uncordon worker-1 --context=sim; to \
                go on without waiting: kubectl drain worker-1 --ignore-daemonsets --timeout=2s --context=sim";
    scenario
        .run(&["drain", "worker-1", "--timeout=2s"])
        .has(1, &["not acknowledged after 2 s: 10.0.0.101 /health (got it 0 of 4 times", left]);
    assert!(is_cordoned(&scenario, "worker-1") && scenario.sim.get("pods", "default", "app").is_some());
}

#[test]
fn kubectls_refusal_comes_before_the_cordon() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    add_bare_pod(&scenario);
    scenario.run(&["drain", "worker-1"]).has(1, &["kubectl drain would not do it: ", "default/bare"]);
    assert!(!is_cordoned(&scenario, "worker-1"));
    scenario
        .run(&["drain", "worker-1", "--force", "--ignore-daemonsets=true", "--timeout=60s"])
        .has(0, &["kubectl drain worker-1 --ignore-daemonsets --force --timeout=60s --context="]);
    assert!(scenario.sim.get("pods", "default", "bare").is_none());
}

#[test]
fn an_interrupted_drain_says_how_the_node_is_left() {
    let scenario = cluster(UNRESPONSIVE, &["worker-1", "worker-2"]);
    for (signal, name) in [("INT", "Ctrl-C"), ("TERM", "SIGTERM")] {
        scenario.sim.uncordon("worker-1");
        let child = waiting(&scenario, &["drain", "worker-1"]);
        process::signal(child.id(), signal);
        let left = " cordoned, and no pod was evicted; to undo: ";
        Said::of(&child.wait_with_output().unwrap()).has(1, &[&format!("interrupted by {name}"), left]);
    }
}

/// After an unreadable answer the plugin does not know if the node was cordoned; after a refusal it does.
#[test]
fn a_failed_cordon_says_whether_the_node_was_changed() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let maybe = "it may be cordoned, and no pod was evicted; to undo: kubectl nodegate uncordon worker-1 --context=sim; to go ";
    for (effect, left) in [(Effect::Forbidden, "nothing was done to it\n"), (Effect::Malformed, maybe)] {
        let scope = FaultScope::all().resources(&["nodes"]).verbs(&["patch"]);
        let fault = scenario.sim.faults().add(effect.on(scope));
        scenario.run(&["drain", "worker-1"]).has(1, &["  can't cordon worker-1: ", left]);
        scenario.sim.faults().remove(fault);
    }
}

#[test]
fn a_signal_during_the_eviction_ends_kubectl_too() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let pod = || scenario.sim.get("pods", "default", "app").unwrap();
    let mut slow = pod();
    slow["metadata"]["finalizers"] = json!(["example.com/slow"]);
    scenario.sim.apply(slow).unwrap();
    let child = waiting(&scenario, &["drain", "worker-1"]);
    until("the eviction", || pod()["metadata"]["deletionTimestamp"].is_string().then_some(()));
    process::signal(child.id(), "HUP");
    Said::of(&child.wait_with_output().unwrap())
        .has(1, &["it is left cordoned, and pods may have been evicted"]);
}

/// Starts a drain, and returns when the node is cordoned.
fn waiting(scenario: &Scenario, args: &[&str]) -> Child {
    let child = scenario.command(args).stdout(Stdio::piped()).spawn().unwrap();
    until("the cordon", || is_cordoned(scenario, "worker-1").then_some(()));
    child
}

#[test]
fn min_ready_is_checked_again_before_the_eviction() {
    let scenario = cluster(UNRESPONSIVE, &["worker-1", "worker-2", "worker-3"]);
    let child = waiting(&scenario, &["drain", "worker-1", "--min-ready=2"]);
    scenario.sim.cordon("worker-3");
    scenario.crowd.now("worker-1", follows(&scenario.sim, "worker-1", RESPONSIVE));
    let left = "it is uncordoned again, and no pod was evicted";
    Said::of(&child.wait_with_output().unwrap())
        .has(1, &["refused: 1 other node is Ready, --min-ready=2", left]);
    assert!(!is_cordoned(&scenario, "worker-1") && scenario.sim.get("pods", "default", "app").is_some());
}

#[test]
fn with_a_drain_budget_no_node_waits_for_another() {
    for has_budget in [true, false] {
        let setup = DrainSetup { has_budget, ..RESPONSIVE };
        let scenario = cluster(setup, &["worker-1", "worker-2", "worker-3"]);
        let slow = follows(&scenario.sim, "worker-1", DrainSetup { unresponsive: 1, ..setup });
        scenario.crowd.now("worker-1", slow);
        let said = scenario.run(&["drain", "worker-1", "worker-2", "--timeout=4s"]);
        said.has(1, &[]);
        assert_eq!(is_cordoned(&scenario, "worker-2"), has_budget, "{said:#?}");
        assert_eq!(steps(&said, "worker-2").contains(&"drained".to_owned()), has_budget, "{said:#?}");
        assert_eq!(said.out.contains("not started: worker-2"), !has_budget, "{said:#?}");
    }
}

#[test]
fn a_node_that_vanishes_ends_the_wait() {
    let scenario = cluster(UNRESPONSIVE, &["worker-1", "worker-2"]);
    let child = waiting(&scenario, &["drain", "worker-1", "worker-2"]);
    assert!(scenario.sim.delete_node("worker-1"));
    let parts = ["not drained: the Node is gone", "there is nothing to undo", "not started: worker-2"];
    Said::of(&child.wait_with_output().unwrap()).has(1, &parts);
}

#[test]
fn a_node_is_read_when_its_turn_comes() {
    let scenario = cluster(UNRESPONSIVE, &["worker-1", "worker-2", "worker-3"]);
    scenario.sim.cordon("worker-2");
    let child = waiting(&scenario, &["drain", "worker-1", "worker-2"]);
    scenario.sim.uncordon("worker-2");
    for node in ["worker-1", "worker-2"] {
        scenario.crowd.now(node, follows(&scenario.sim, node, RESPONSIVE));
    }
    let said = Said::of(&child.wait_with_output().unwrap());
    said.has(0, &[]);
    assert_eq!(steps(&said, "worker-2")[0], "cordoned", "{said:#?}");
    assert!(is_cordoned(&scenario, "worker-2"));
}

/// Shows that the plugin and its kubectl have one credential: for a person, the second code would be another one.
#[test]
fn a_credential_plugin_runs_once_for_a_drain() {
    let scenario = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let runs = scenario.file("runs");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": ADMIN_TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"},
    });
    let script = format!("echo run >> {}; echo '{credential}'", runs.display());
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "IfAvailable",
    }});
    let file = scenario.file("user.kubeconfig");
    std::fs::write(&file, scenario.sim.kubeconfig_as(&user)).unwrap();
    let said = scenario.run(&["drain", "worker-1", "--kubeconfig", file.to_str().unwrap()]);
    said.has(0, &[]);
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n", "{said:#?}");
    assert!(!said.out.contains(ADMIN_TOKEN), "{said:#?}");
}
