//! The drain budget on a real API server: what many agents ask when all of their nodes are cordoned, and while none is, and
//! how long a flip takes with it.

use crate::gate::send_all;
use crate::rights::requests;
use nodegate_testbed::real_cluster::{MERGE, REAL_NODE, RealCluster, STRATEGIC, ServerRoute, wait_watches};
use nodegate_testbed::waiting::until_or;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{Agent, http};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The nodes that are cordoned at once. `REAL_AGENTS` sets another number.
const NODES: usize = 50;
const WITH: &str = "--max-drained=50%";
const WITHOUT: &str = "--max-drained=100%";
/// The time for which requests are counted while no node is cordoned.
const WINDOW: Duration = Duration::from_mins(4);
const FLIPS: usize = 400;
const RENEWAL: Duration = Duration::from_secs(10);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Nodes without a machine, whose Leases one client renews. Drop deletes them.
struct Pool<'a> {
    cluster: &'a RealCluster,
    names: Vec<String>,
}

impl<'a> Pool<'a> {
    fn create(cluster: &'a RealCluster, count: usize) -> Self {
        let names: Vec<String> = (0..count).map(|number| format!("pool-{number:03}")).collect();
        let node = |name: &String| {
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [ready]}});
            ("/api/v1/nodes".to_owned(), "application/json", node)
        };
        assert_eq!(send_all(cluster, "POST", names.iter().map(node)), vec![201; count]);
        let lease = |name: &String| {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
            (LEASES.to_owned(), "application/json", lease)
        };
        assert_eq!(send_all(cluster, "POST", names.iter().map(lease)), vec![201; count]);
        Self { cluster, names }
    }

    fn renew(&self) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let renewal =
            |name: &String| (format!("{LEASES}/{name}"), MERGE, json!({"spec": {"renewTime": now}}));
        send_all(self.cluster, "PATCH", self.names.iter().map(renewal));
    }

    /// Runs `measure` while the Leases are renewed.
    fn alive<T>(&self, measure: impl FnOnce() -> T) -> T {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let next = Instant::now() + RENEWAL;
                    self.renew();
                    while Instant::now() < next && !ended.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(50));
                    }
                }
            });
            let measured = measure();
            ended.store(true, Ordering::Relaxed);
            measured
        })
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        for list in ["/api/v1/nodes", LEASES] {
            let object = |name: &String| (format!("{list}/{name}"), "application/json", json!({}));
            send_all(self.cluster, "DELETE", self.names.iter().map(object));
        }
    }
}

fn is_out(agent: &Agent) -> bool {
    http::get(agent.address(), "/health").is_ok_and(|reply| reply.status == 503)
}

/// Returns the bytes of all answers about Nodes that API server A has written to lists.
fn listed_bytes(cluster: &RealCluster) -> f64 {
    let output = cluster.api.curl().args(["--silent", "https://10.10.0.1:6443/metrics"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lists = text.lines().filter(|line| {
        line.starts_with("apiserver_response_sizes_sum{")
            && line.contains(r#"resource="nodes""#)
            && line.contains(r#"verb="LIST""#)
    });
    lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_cordon_of_all_nodes_leaves_half_of_them_in_the_pool() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let count = std::env::var("REAL_AGENTS").map_or(NODES, |count| count.parse().expect("a number"));
    let pool = Pool::create(&cluster, count);
    pool.alive(|| {
        let start = |name: &String| cluster.agent(name, ServerRoute::A, "nodegate", &[WITH]);
        let agents: Vec<_> = pool.names.iter().map(start).collect();
        for agent in &agents {
            wait_watches(agent, 2.0);
            agent.until_ready();
        }
        let (from, bytes) = (jiff::Timestamp::now(), listed_bytes(&cluster));
        let began = Instant::now();
        let cordon = |name: &String| (format!("/api/v1/nodes/{name}"), STRATEGIC, json!({"spec": {"unschedulable": true}}));
        assert_eq!(send_all(&cluster, "PATCH", pool.names.iter().map(cordon)), vec![200; count]);
        let took = began.elapsed();
        let half = || (agents.iter().filter(|agent| is_out(agent)).count() >= count / 2).then_some(());
        until_or(half, || "half of the nodes are not out".to_owned());
        sleep(Duration::from_mins(1).saturating_sub(began.elapsed()));
        let asked = requests(&cluster, from);
        let lists = asked.iter().filter(|(what, _)| what == "list nodes").count();
        let bytes = listed_bytes(&cluster) - bytes;
        let out = agents.iter().filter(|agent| is_out(agent)).count();
        let late: usize = agents.iter().filter(|agent| agent.log_text().contains("can't count the cordoned nodes")).count();
        seen(
            "a cordon of all nodes",
            &format!(
                "{count} within {took:?}: {out} out, {late} of them without an answer in time; in that minute {} requests of the \
                 agents, {lists} of them lists of {:.0} kB in all",
                asked.len(),
                bytes / 1e3
            ),
        );
        assert!((count / 2..=count / 2 + late).contains(&out), "{out} out, {late} without an answer");
    });
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_budget_asks_nothing_while_no_node_is_cordoned() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let pool = Pool::create(&cluster, 5);
    pool.alive(|| {
        let start = |budget: &'static str| {
            let start = |name: &String| cluster.agent(name, ServerRoute::A, "nodegate", &[budget]);
            pool.names.iter().map(start).collect::<Vec<_>>()
        };
        let agents = [start(WITH), start(WITHOUT)];
        for agent in agents.iter().flatten() {
            wait_watches(agent, 2.0);
            agent.until_ready();
        }
        let sent = || {
            agents.each_ref().map(|agents| {
                agents.iter().map(|agent| agent.metric_sum("nodegate_api_requests_total")).sum::<f64>()
            })
        };
        let before = sent();
        sleep(WINDOW);
        let after = sent();
        let [with, without] = [0, 1].map(|index| after[index] - before[index]);
        let lists = |agents: &[Agent]| -> f64 {
            agents
                .iter()
                .filter_map(|agent| agent.metric(r#"nodegate_api_requests_total{verb="list",code="200"}"#))
                .sum()
        };
        seen(
            "no node is cordoned",
            &format!(
                "five agents with the budget sent {with} requests in {WINDOW:?}, five without it {without}"
            ),
        );
        assert!(lists(&agents[0]) <= lists(&agents[1]), "lists since the start");
    });
}

/// A time, and true if the node was cordoned, or out.
type Change = (Instant, bool);

/// Reports each change that a plain watch of the node shows, until the receiver is dropped.
fn follow(cluster: &RealCluster) -> Receiver<Change> {
    let (sender, changes) = channel();
    let path =
        format!("https://10.10.0.1:6443/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{REAL_NODE}");
    let mut watch =
        cluster.api.curl().args(["--silent", "--no-buffer", &path]).stdout(Stdio::piped()).spawn().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line.contains(r#""unschedulable":true"#))).is_err() {
                break;
            }
        }
        watch.kill().unwrap();
        watch.wait().unwrap();
    });
    changes
}

/// Asks the agent all the time, and reports each change of its answer.
fn ask(agent: &Agent, ended: &AtomicBool, sender: &Sender<Change>) {
    let mut last = None;
    while !ended.load(Ordering::Relaxed) {
        let out = is_out(agent);
        if last.replace(out) != Some(out) {
            let _ = sender.send((Instant::now(), out));
        }
        sleep(Duration::from_micros(200));
    }
}

fn next(changes: &Receiver<Change>, wanted: bool) -> Instant {
    loop {
        let (at, is_out) = changes.recv_timeout(http::TIMEOUT).expect("a change");
        if is_out == wanted {
            return at;
        }
    }
}

/// Returns how far the flips of an agent are behind a plain watch of the node, in milliseconds, the shortest first.
fn behind_a_watch(cluster: &RealCluster, budget: &str) -> Vec<f64> {
    let agent = cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", &[budget]);
    wait_watches(&agent, 2.0);
    agent.until_ready();
    let watched = follow(cluster);
    let (sender, answered) = channel();
    let ended = AtomicBool::new(false);
    let mut behind = thread::scope(|scope| {
        scope.spawn(|| ask(&agent, &ended, &sender));
        let mut behind = Vec::new();
        for _ in 0..FLIPS {
            for out in [true, false] {
                let spec = json!({"spec": {"unschedulable": if out { json!(true) } else { json!(null) }}});
                cluster.api.patch(&format!("/api/v1/nodes/{REAL_NODE}"), STRATEGIC, &spec).unwrap();
                let (event, at) = (next(&watched, out), next(&answered, out));
                if out {
                    behind.push(at.saturating_duration_since(event).as_secs_f64() * 1e3);
                }
            }
        }
        ended.store(true, Ordering::Relaxed);
        behind
    });
    behind.sort_by(f64::total_cmp);
    behind
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_flip_waits_for_the_budget_but_for_one_answer() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    // One after the other: two agents would wait for each other's answers.
    let [with, without] = [WITH, WITHOUT].map(|budget| {
        let times = behind_a_watch(&cluster, budget);
        format!("p50 {:.1} ms, p99 {:.1} ms", times[FLIPS / 2], times[FLIPS * 99 / 100])
    });
    seen("flips behind a plain watch", &format!("of {FLIPS}, with the budget {with}; without it {without}"));
}
