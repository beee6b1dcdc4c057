//! Drains with the real kubectl.

use crate::crowd::Behaviour;
use crate::lab::{Lab, Said, counted, out, prober, ready, says};
use nodegate_kube_sim::{ADMIN_TOKEN, Effect, FaultScope, Sim};
use nodegate_testbed::process;
use nodegate_testbed::waiting::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The behaviour of a node's balancers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scene {
    /// The number of balancers that probe and get the new verdict.
    pub(crate) acknowledged: usize,
    /// The number of balancers that probe and have not got the new verdict.
    pub(crate) unresponsive: usize,
    /// The sessions on `--traffic-port` at first; one of them ends every 100 ms once the node is out.
    pub(crate) sessions: Option<u64>,
    /// True if the agents have a drain budget.
    pub(crate) has_budget: bool,
}

/// Returns an agent that follows its Node in kube-sim; its balancers probe every 50 ms.
pub(crate) fn follows(sim: &Sim, node: &'static str, scene: Scene) -> Behaviour {
    let (sim, turned) = (sim.clone(), Mutex::new((false, None::<Instant>)));
    Behaviour::Says(Arc::new(move || {
        let cordoned = sim.node(node).is_some_and(|node| node["spec"]["unschedulable"] == true);
        let mut turned = turned.lock().unwrap();
        if turned.0 != cordoned {
            *turned = (cordoned, Some(Instant::now()));
        }
        said(node, cordoned, turned.1.map_or(Duration::from_mins(10), |at| at.elapsed()), scene).to_string()
    }))
}

fn said(node: &str, cordoned: bool, since: Duration, scene: Scene) -> Value {
    let mut status = if cordoned { out(node, "draining", "Unschedulable", 0) } else { ready(node) };
    let since_ms = u64::try_from(since.as_millis()).unwrap();
    let (verdict, other) = if cordoned { ("draining", "ready") } else { ("ready", "draining") };
    let in_a_row = u32::try_from(since_ms / 50).unwrap().max(1);
    let knows = in_a_row > if cordoned { 3 } else { 2 };
    let asks = |number: usize, verdict: &str, knows: bool| {
        prober(&format!("10.0.0.{number}"), verdict, in_a_row, Some(knows))
    };
    let told = (0..scene.acknowledged).map(|number| asks(number + 1, verdict, knows));
    let unresponsive = (0..scene.unresponsive).map(|number| asks(number + 101, other, false));
    status["probers"] = told.chain(unresponsive).collect();
    let all = knows && scene.unresponsive == 0;
    let (out, back) = if cordoned { (all, false) } else { (false, all) };
    let drain = &mut status["drain"];
    (drain["acknowledged"], drain["acknowledged_ready"], drain["since_ms"]) =
        (json!(out), json!(back), json!(since_ms));
    if !all {
        let missing = (0..scene.unresponsive).map(|number| format!("10.0.0.{}", number + 101));
        let missing = missing
            .chain((0..scene.acknowledged).filter(|_| !knows).map(|number| format!("10.0.0.{}", number + 1)));
        drain["waiting_for"] = missing
            .map(|prober| json!({"prober": prober, "question": "/health", "why": "got it 0 of 4 times"}))
            .collect();
    }
    if scene.acknowledged + scene.unresponsive == 0 {
        (drain["not_known"], drain["not_known_code"]) =
            (json!("no balancer probes this agent regularly"), json!("no_probers"));
    }
    if scene.has_budget {
        status["max_drained"] = json!(50);
    }
    if let Some(sessions) = scene.sessions {
        let left = if cordoned { sessions.saturating_sub(since_ms / 100) } else { sessions };
        status["drain"]["traffic"] = json!({"ports": [443], "established": left, "age_ms": 100});
    }
    counted(status)
}

/// Creates a cluster whose agents follow their nodes, with a pod of a `ReplicaSet` on the first node.
pub(crate) fn cluster(scene: Scene, nodes: &[&'static str]) -> Lab {
    let lab = Lab::new(nodes.iter().map(|node| (*node, says(&ready(node)))));
    for node in nodes {
        lab.crowd.now(node, follows(&lab.sim, node, scene));
    }
    lab.sim.apply(json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "nodegate", "namespace": "nodegate"}})).unwrap();
    add_pod(&lab.sim, "app", nodes[0], true);
    lab
}

pub(crate) fn add_pod(sim: &Sim, name: &str, node: &str, owned: bool) {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"},
    });
    if owned {
        pod["metadata"]["ownerReferences"] = owner;
    }
    sim.apply(pod).unwrap();
}

pub(crate) fn is_cordoned(lab: &Lab, node: &str) -> bool {
    lab.sim.node(node).unwrap()["spec"]["unschedulable"] == true
}

/// Returns the plugin's own lines for a node, without their seconds.
pub(crate) fn steps(said: &Said, node: &str) -> Vec<String> {
    let lines = said.out.lines().filter_map(|line| line.strip_prefix(node));
    lines.filter_map(|line| Some(line.split_once(" s  ")?.1.to_owned())).collect()
}

#[test]
fn pods_are_evicted_after_the_balancers_acknowledged() {
    let lab = cluster(Scene { acknowledged: 2, ..Scene::default() }, &["worker-1", "worker-2"]);
    let said = lab.run(&["drain", "worker-1"]);
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert!(said.out.starts_with(&format!("cluster: context sim, server {}", lab.sim.url())), "{said:#?}");
    let steps = steps(&said, "worker-1");
    let at = |part: &str| {
        steps
            .iter()
            .position(|step| step.starts_with(part))
            .unwrap_or_else(|| panic!("no {part} in {steps:#?}"))
    };
    let order = [
        at("cordoned"),
        at("acknowledged  10.0.0.1 /health: "),
        at("acknowledged after "),
        at("kubectl drain worker-1 --ignore-daemonsets"),
        at("drained"),
    ];
    assert!(order.is_sorted(), "{steps:#?}");
    assert!(said.out.contains("evicting pod default/app"), "kubectl's own lines: {said:#?}");
    assert!(is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_none());
    assert!(lab.sim.get("pods", "nodegate", "nodegate-worker-1").is_some());

    let back = lab.run(&["uncordon", "worker-1"]);
    assert_eq!(back.code, Some(0), "{back:#?}");
    assert!(!is_cordoned(&lab, "worker-1"));
    let steps = self::steps(&back, "worker-1");
    assert!(steps[0] == "uncordoned" && steps.last().unwrap().starts_with("ready after "), "{steps:#?}");
    let again = lab.run(&["uncordon", "worker-1"]);
    assert!(again.code == Some(0) && again.out.contains("was not cordoned"), "{again:#?}");
}

#[test]
fn a_drain_that_cant_be_acknowledged_is_refused_before_any_change() {
    let lab = cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    let untouched = |said: &Said, code: i32, why: &str| {
        assert_eq!(said.code, Some(code), "{said:#?}");
        assert!(said.out.contains(why) && said.out.contains("nothing was done to it"), "{said:#?}");
        assert!(!is_cordoned(&lab, "worker-1"));
    };
    untouched(&lab.run(&["drain", "worker-1", "--for=released"]), 3, "its agent has no --traffic-port");
    lab.crowd.now("worker-1", follows(&lab.sim, "worker-1", Scene::default()));
    untouched(&lab.run(&["drain", "worker-1"]), 3, "no balancer probes this agent regularly");
    let mut full = ready("worker-1");
    (full["drain"]["overflows"], full["drain"]["not_known_code"]) = (json!(12), json!("overflown"));
    lab.crowd.now("worker-1", says(&full));
    untouched(
        &lab.run(&["drain", "worker-1"]),
        3,
        "its agent has more probers than it can remember: 12 probe",
    );
    lab.crowd.now("worker-1", Behaviour::Closes);
    untouched(&lab.run(&["drain", "worker-1", "worker-2"]), 3, "its agent does not answer");
    assert!(lab.run(&["drain", "worker-1", "worker-2"]).out.contains("not started: worker-2"));
    let absent = lab.run(&["drain", "worker-9"]);
    assert_eq!(
        (absent.code, absent.err.as_str()),
        (Some(3), "kubectl-nodegate: the cluster has no Node worker-9; kubectl get nodes lists them\n")
    );
}

#[test]
fn min_ready_refuses_and_the_last_ready_node_is_a_warning() {
    let lab = cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2", "worker-3"]);
    let refused = lab.run(&["drain", "worker-1", "--min-ready=3"]);
    assert!(
        refused.code == Some(1) && refused.out.contains("refused: 2 other nodes are Ready, --min-ready=3")
    );
    assert!(!is_cordoned(&lab, "worker-1"), "{refused:#?}");

    // One after the other: for the second node fewer others are Ready.
    let both = lab.run(&["drain", "worker-1", "worker-2", "--min-ready=2"]);
    assert!(
        both.code == Some(1) && is_cordoned(&lab, "worker-1") && !is_cordoned(&lab, "worker-2"),
        "{both:#?}"
    );
    assert!(both.out.contains("refused: 1 other node is Ready, --min-ready=2"), "{both:#?}");
    // A guess does not count.
    let mut stale = ready("worker-3");
    stale["cache"]["stale"] = json!(true);
    lab.crowd.now("worker-3", says(&stale));
    let last = lab.run(&["drain", "worker-2"]);
    assert_eq!(last.code, Some(0), "{last:#?}");
    assert!(last.out.contains("warning: no other node is Ready"), "{last:#?}");
    // Where balancers have a pool of last resort, a drained node of such a cluster may still serve.
    for node in ["worker-2", "worker-3"] {
        lab.crowd.now(node, says(&out(node, "draining", "ExcludedFromLoadBalancers", 7300)));
    }
    let labelled = lab.run(&["drain", "worker-1", "--dry-run=client"]);
    assert!(labelled.out.contains("warning: all nodes that are left are out by the label"), "{labelled:#?}");
}

#[test]
fn no_pod_is_evicted_before_every_balancer_has_acknowledged() {
    let lab =
        cluster(Scene { acknowledged: 1, unresponsive: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    let said = lab.run(&["drain", "worker-1", "--timeout=2s"]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_some());
    for part in [
        "not acknowledged after 2 s: 10.0.0.101 /health (got it 0 of 4 times",
        "it is left cordoned, and no pod was evicted; to undo: kubectl nodegate uncordon worker-1 --context=sim; to go on \
         without waiting: kubectl drain worker-1 --ignore-daemonsets --timeout=2s --context=sim",
    ] {
        assert!(said.out.contains(part), "no {part:?} in {said:#?}");
    }
}

#[test]
fn kubectls_refusal_comes_before_the_cordon() {
    let lab = cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    add_pod(&lab.sim, "bare", "worker-1", false);
    let refused = lab.run(&["drain", "worker-1"]);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(
        refused.out.contains("kubectl drain would not do it: ") && refused.out.contains("default/bare"),
        "{refused:#?}"
    );
    assert!(!is_cordoned(&lab, "worker-1"));
    let forced = lab.run(&["drain", "worker-1", "--force", "--ignore-daemonsets=true", "--timeout=60s"]);
    assert_eq!(forced.code, Some(0), "{forced:#?}");
    assert!(
        forced.out.contains("kubectl drain worker-1 --ignore-daemonsets --force --timeout=60s --context=")
    );
    assert!(lab.sim.get("pods", "default", "bare").is_none());
}

#[test]
fn an_interrupted_drain_says_how_the_node_is_left() {
    let lab =
        cluster(Scene { acknowledged: 1, unresponsive: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    for (signal, name) in [("INT", "Ctrl-C"), ("TERM", "SIGTERM")] {
        lab.sim.uncordon("worker-1");
        let mut child = lab.command(&["drain", "worker-1"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("  cordoned")) && is_cordoned(&lab, "worker-1"));
        process::signal(child.id(), signal);
        let said = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains(&format!("interrupted by {name}")), "{said}");
        assert!(said.contains("it is left cordoned, and no pod was evicted; to undo: "), "{said}");
    }
}

/// After an unreadable answer the plugin does not know if the node was cordoned; after a refusal it does.
#[test]
fn a_failed_cordon_says_whether_the_node_was_changed() {
    let lab = cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    let scope = || FaultScope::all().resources(&["nodes"]).verbs(&["patch"]);
    for (effect, left) in [
        (Effect::Forbidden, "nothing was done to it\n"),
        (
            Effect::Malformed,
            "it may be cordoned, and no pod was evicted; to undo: kubectl nodegate uncordon worker-1 --context=sim; to go on ",
        ),
    ] {
        let fault = lab.sim.faults().add(effect.on(scope()));
        let said = lab.run(&["drain", "worker-1"]);
        assert!(said.code == Some(1) && said.out.contains("  can't cordon worker-1: "), "{said:#?}");
        assert!(said.out.contains(left), "{said:#?}");
        lab.sim.faults().remove(fault);
    }
}

#[test]
fn a_signal_during_the_eviction_ends_kubectl_too() {
    let lab = cluster(Scene { acknowledged: 1, ..Scene::default() }, &["worker-1", "worker-2"]);
    let mut pod = lab.sim.get("pods", "default", "app").unwrap();
    pod["metadata"]["finalizers"] = json!(["example.com/slow"]);
    lab.sim.apply(pod).unwrap();
    let mut child = lab.command(&["drain", "worker-1"]).stdout(Stdio::piped()).spawn().unwrap();
    let evicted =
        || lab.sim.get("pods", "default", "app").unwrap()["metadata"]["deletionTimestamp"].is_string();
    until("the eviction", || evicted().then_some(()));
    process::signal(child.id(), "HUP");
    until("the plugin to end", || child.try_wait().unwrap());
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.out.contains("it is left cordoned, and pods may have been evicted"), "{said:#?}");
}

/// Starts a drain of a node with a balancer that does not acknowledge, and returns when it waits.
fn waiting(lab: &Lab, args: &[&str]) -> Child {
    let child = lab.command(args).stdout(Stdio::piped()).spawn().unwrap();
    until("the cordon", || is_cordoned(lab, "worker-1").then_some(()));
    child
}

pub(crate) const UNRESPONSIVE: Scene =
    Scene { acknowledged: 1, unresponsive: 1, sessions: None, has_budget: false };
pub(crate) const RESPONSIVE: Scene =
    Scene { acknowledged: 1, unresponsive: 0, sessions: None, has_budget: false };

#[test]
fn min_ready_is_checked_again_before_the_eviction() {
    let lab = cluster(UNRESPONSIVE, &["worker-1", "worker-2", "worker-3"]);
    let child = waiting(&lab, &["drain", "worker-1", "--min-ready=2"]);
    lab.sim.cordon("worker-3");
    lab.crowd.now("worker-1", follows(&lab.sim, "worker-1", RESPONSIVE));
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.out.contains("refused: 1 other node is Ready, --min-ready=2"), "{said:#?}");
    assert!(said.out.contains("it is uncordoned again, and no pod was evicted"), "{said:#?}");
    assert!(!is_cordoned(&lab, "worker-1") && lab.sim.get("pods", "default", "app").is_some());
}

#[test]
fn with_a_drain_budget_no_node_waits_for_another() {
    for has_budget in [true, false] {
        let scene = Scene { acknowledged: 1, has_budget, ..Scene::default() };
        let lab = cluster(scene, &["worker-1", "worker-2", "worker-3"]);
        lab.crowd.now("worker-1", follows(&lab.sim, "worker-1", Scene { unresponsive: 1, ..scene }));
        let said = lab.run(&["drain", "worker-1", "worker-2", "--timeout=4s"]);
        assert_eq!(said.code, Some(1), "{said:#?}");
        assert_eq!(is_cordoned(&lab, "worker-2"), has_budget, "{said:#?}");
        assert_eq!(steps(&said, "worker-2").contains(&"drained".to_owned()), has_budget, "{said:#?}");
        assert_eq!(said.out.contains("not started: worker-2"), !has_budget, "{said:#?}");
    }
}

#[test]
fn a_node_that_vanishes_ends_the_wait() {
    let lab = cluster(UNRESPONSIVE, &["worker-1", "worker-2"]);
    let child = waiting(&lab, &["drain", "worker-1", "worker-2"]);
    assert!(lab.sim.delete_node("worker-1"));
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1), "{said:#?}");
    for part in ["not drained: the Node is gone", "there is nothing to undo", "not started: worker-2"] {
        assert!(said.out.contains(part), "no {part:?} in {said:#?}");
    }
}

#[test]
fn a_node_is_read_when_its_turn_comes() {
    let lab = cluster(UNRESPONSIVE, &["worker-1", "worker-2", "worker-3"]);
    lab.sim.cordon("worker-2");
    let child = waiting(&lab, &["drain", "worker-1", "worker-2"]);
    lab.sim.uncordon("worker-2");
    for node in ["worker-1", "worker-2"] {
        lab.crowd.now(node, follows(&lab.sim, node, RESPONSIVE));
    }
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert_eq!(steps(&said, "worker-2")[0], "cordoned", "{said:#?}");
    assert!(is_cordoned(&lab, "worker-2"));
}

/// Shows that the plugin and its kubectl have one credential: for a person, the second code would be another one.
#[test]
fn a_credential_plugin_runs_once_for_a_drain() {
    let lab = cluster(RESPONSIVE, &["worker-1", "worker-2"]);
    let runs = lab.dir.path().join("runs");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": ADMIN_TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"},
    });
    let script = format!("echo run >> {}; echo '{credential}'", runs.display());
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "IfAvailable",
    }});
    let file = lab.file("user.kubeconfig", &lab.sim.kubeconfig_as(&user));
    let said = lab.run(&["drain", "worker-1", "--kubeconfig", file.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n", "{said:#?}");
    assert!(!said.out.contains(ADMIN_TOKEN), "{said:#?}");
}
