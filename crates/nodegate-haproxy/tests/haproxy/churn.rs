//! A Service that changes constantly delays no other Service, and servers move without a reload.

use crate::Row;
use crate::lab::{Lab, local, node, node_address, node_name, serve};
use crate::servers::{Asked, Counts, count, counted_agents, serve_paths};
use crate::traffic::Traffic;
use nodegate_testbed::http;
use nodegate_testbed::network::ports;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DYNAMIC: &str = "nodegate_haproxy_applies_total{kind=\"dynamic\"}";

fn total(counts: &Counts) -> u64 {
    counts.lock().unwrap().values().sum()
}

fn to_node_port(mut service: Value, node_port: u16) -> Value {
    service["spec"]["ports"][0]["nodePort"] = json!(node_port);
    service
}

/// Deletes and creates a Service every second until the work is done.
async fn while_one_flaps<T>(lab: &Lab, flapping: &Value, work: impl Future<Output = T>) -> (T, usize) {
    let mut flaps = 0;
    let flap = async {
        loop {
            lab.sim.apply(flapping.clone()).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let name = flapping["metadata"]["name"].as_str().unwrap();
            lab.sim.delete("services", "default", name);
            flaps += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        done = work => (done, flaps),
        () = flap => unreachable!("it never ends"),
    }
}

/// Waits until a Service that changes every second has to wait for its next reload.
async fn until_it_waits(lab: &Lab) {
    let first = lab.processes_now().await.reloads;
    let seen = Cell::new((first, Instant::now()));
    lab.until("the one that flaps has to wait", async || {
        let now = lab.processes_now().await.reloads;
        if now != seen.get().0 {
            seen.set((now, Instant::now()));
        }
        let waits = now > first && lab.metric("nodegate_haproxy_pending") == Some(1.0);
        waits && seen.get().1.elapsed() > Duration::from_secs(3)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_port_arrives_while_a_neighbour_changes_every_second() {
    other_node_port().await;
}

pub(crate) async fn other_node_port() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let own = serve(Arc::default(), |_| true).await;
    let flapping = to_node_port(lab.service("busy", ports::free(), &json!({})), own);
    let (served, other) = (Counts::default(), Counts::default());
    let next = serve(Arc::clone(&served), |_| true).await;
    let between = serve(Arc::clone(&other), |_| true).await;
    let to =
        |node_port| lab.sim.apply(to_node_port(lab.service("web", port, &json!({})), node_port)).unwrap();
    let moves = async {
        // A reload for the flapping Service may carry the new port by chance, but not time after time.
        for _ in 0..5 {
            until_it_waits(&lab).await;
            let (dynamic, before) = (lab.metric(DYNAMIC), total(&served));
            to(next);
            let took = lab.until("the new port of the nodes serves", async || total(&served) > before).await;
            let applied = async || lab.metric(DYNAMIC) > dynamic;
            for _ in 0..100 {
                if applied().await {
                    return took;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let before = total(&other);
            to(between);
            lab.until("the port between serves", async || total(&other) > before).await;
        }
        panic!("a reload was waited for each time\n{}", lab.log());
    };
    let (took, _) = while_one_flaps(&lab, &flapping, moves).await;
    // The next reload brings the port to the rules for the last resort, too.
    let backend = format!("nodegate_default_web_{port}");
    lab.until("the frontend is loaded", async || lab.metric("nodegate_haproxy_pending") == Some(0.0)).await;
    for index in 0..2 {
        assert!(lab.sim.cordon(&node_name(index)));
        lab.until("it drains", async || lab.is_draining(&backend, &node_name(index)).await).await;
    }
    let old = total(&lab.served);
    let before = total(&served);
    lab.until("the last resort serves", async || total(&served) > before + 20).await;
    assert_eq!(total(&lab.served), old, "the last resort goes to the old port\n{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("served at the new one after {} ms; {good} requests, 0 lost", took.as_millis());
    Row { what: "other nodePort, a neighbour flaps every second", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_address_is_served_there_without_a_reload() {
    other_address().await;
}

pub(crate) async fn other_address() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let before = lab.processes_now().await;
    let traffic = Traffic::start(port);
    let address = IpAddr::from([127, 1, 9, 9]);
    let mut moved = node(1);
    moved["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
    let began = Instant::now();
    lab.sim.apply(moved).unwrap();
    let at = |counts: &Counts| counts.lock().unwrap().get(&address).copied().unwrap_or(0);
    lab.until("it is served there", async || at(&lab.served) > 0).await;
    let took = began.elapsed();
    lab.until("it is checked there", async || at(&lab.checked) > 0).await;
    lab.until_spared(1).await;
    assert_ne!(node_address(1), address);
    let checks = count(&lab.checked, 1);
    let others = count(&lab.checked, 0);
    lab.until("checks go on", async || count(&lab.checked, 0) > others + 4).await;
    assert!(count(&lab.checked, 1) <= checks + 1, "still checked at its old address\n{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    assert_eq!(lab.processes_now().await, before, "no reload, the same worker\n{}", lab.log());
    let result = format!("served after {} ms, 0 reloads; {good} requests, 0 lost", took.as_millis());
    Row { what: "a Node's address changes", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_asked_each_question_once_an_interval() {
    checks().await;
}

/// Checks that the number of health checks does not depend on the nodes and algorithms of Services.
pub(crate) async fn checks() -> Row {
    let mut lab = Lab::new(4).await;
    let asked = Asked::default();
    lab.check_port = serve_paths(Arc::clone(&asked)).await;
    for index in 0..4 {
        let mut labelled = node(index);
        labelled["metadata"]["labels"][format!("pool-{}", index % 2)] = json!("");
        lab.sim.apply(labelled).unwrap();
    }
    let first = 21_000;
    let policies = [
        ("nodes", "pool-0"),
        ("nodes", "pool-1"),
        ("nodes", "!pool-0"),
        ("nodes", "pool-0,!pool-1"),
        ("balance", "leastconn"),
        ("balance", "random"),
        ("mode", "http"),
        ("send-proxy", "v2"),
    ];
    for (index, (key, value)) in policies.into_iter().enumerate() {
        let annotations = json!({format!("nodegate.io/haproxy-{key}"): value});
        let port = first + u16::try_from(index).unwrap();
        lab.sim.apply(lab.service(&format!("service-{index}"), port, &annotations)).unwrap();
    }
    lab.start(&[first]).await;
    let counts = || asked.lock().unwrap().clone();
    let (before, began) = (counts(), Instant::now());
    let paths = ["/health?drain=404", "/health?drain=200"];
    let rounds = |path: &str| {
        let of = |counts: &BTreeMap<(IpAddr, String), u64>| {
            counts.get(&(node_address(0), path.to_owned())).copied().unwrap_or(0)
        };
        of(&counts()) - of(&before)
    };
    lab.until("each has been asked ten times", async || paths.iter().all(|path| rounds(path) >= 10)).await;
    let (after, elapsed) = (counts(), began.elapsed());
    // The lab's interval is half a second. One check may be under way at either end.
    let most = u64::try_from(elapsed.as_millis() / 500).unwrap() + 2;
    for ((at, path), count) in &after {
        let more = count - before.get(&(*at, path.clone())).copied().unwrap_or(0);
        assert!(more <= most, "{at} was asked {path} {more} times, more than {most}");
        assert!(paths.contains(&path.as_str()), "{path}");
    }
    assert_eq!(after.len(), 4 * paths.len(), "{after:?}");
    let sum = after.values().sum::<u64>() - before.values().sum::<u64>();
    let result = format!(
        "8 Services, 4 nodes: {sum} checks in {:.1} intervals, each question once a node and interval",
        elapsed.as_secs_f64() * 2.0
    );
    Row { what: "checks, whatever Services choose", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_while_a_service_changes_every_second() {
    node_joins(4, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; a row of make haproxy-test"]
async fn a_node_joins_a_large_cluster_while_a_service_changes_every_second() {
    let row = node_joins(500, 100).await;
    println!("{}: {}", row.what, row.result);
}

/// Lets a node join while a Service flaps every second, with a number of other nodes and Services. One
/// Service selects one node and the one that joins, so that every second request shows if the new one serves.
/// Otherwise, with 500 nodes, a client would have to send 500 requests.
pub(crate) async fn node_joins(nodes: usize, services: usize) -> Row {
    const INTERVAL: Duration = Duration::from_secs(2);
    let mut lab = Lab::new(nodes).await;
    lab.check_interval = "2s";
    let (asked, agents) = (Asked::default(), Counts::default());
    lab.check_port = serve_paths(Arc::clone(&asked)).await;
    lab.agent_port = counted_agents(Arc::clone(&agents), |_| b"up ready\n").await;
    let late = |lab: &Lab, index| {
        let mut labelled = node(index);
        labelled["metadata"]["labels"]["late"] = json!("");
        lab.sim.apply(labelled).unwrap();
    };
    late(&lab, 0);
    let first = 20_000;
    for index in 0..services {
        let port = first + u16::try_from(index).unwrap();
        let chosen = if index == 0 { json!({"nodegate.io/haproxy-nodes": "late"}) } else { json!({}) };
        lab.sim.apply(lab.service(&format!("service-{index}"), port, &chosen)).unwrap();
    }
    lab.start(&[first, first + 1]).await;
    let own = serve(Arc::default(), |_| true).await;
    let flapping = to_node_port(lab.service("busy", ports::free(), &json!({})), own);
    let before = lab.processes_now().await.reloads;
    let checks = || {
        let mut counts = asked.lock().unwrap().clone();
        let of_agents = agents.lock().unwrap().clone();
        counts.extend(of_agents.into_iter().map(|(at, count)| ((at, "agent-check".to_owned()), count)));
        counts
    };
    let (counted, began) = (checks(), Instant::now());
    let traffic = [first, first + 1].map(Traffic::start);
    let joins = async {
        until_it_waits(&lab).await;
        let joined = Instant::now();
        late(&lab, nodes);
        lab.until_asked(nodes).await;
        joined.elapsed()
    };
    let (took, flaps) = while_one_flaps(&lab, &flapping, joins).await;
    let (checks, elapsed) = (checks(), began.elapsed());
    let reloads = lab.processes_now().await.reloads - before;
    // The checks of the node that joined are left out: until the next reload, each Service checks it.
    let others = checks.iter().filter(|((at, _), _)| *at != node_address(nodes));
    let more = others.map(|(key, count)| count - counted.get(key).copied().unwrap_or(0));
    let most = more.max().unwrap_or(0);
    let intervals = elapsed.as_secs_f64() / INTERVAL.as_secs_f64();
    let questions: BTreeSet<&str> = checks.keys().map(|(_, question)| question.as_str()).collect();
    assert_eq!(questions.len(), 3, "{questions:?}");
    // A new process begins with one check of each kind, and one may be under way at either end.
    let bound = f64::from(u32::try_from(reloads).unwrap() + 2) + intervals;
    assert!(f64::from(u32::try_from(most).unwrap()) <= bound, "{most} in {intervals:.1} intervals");
    assert!(http::get(local(first), "/").is_ok());
    let mut good = 0;
    for traffic in traffic {
        let (answered, lost) = traffic.end();
        assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
        good += answered;
    }
    let result = format!(
        "served after {} ms; {reloads} reloads in {} s, {flaps} flaps; {good} requests, 0 lost; a question: <= {most} \
         in {intervals:.1} intervals",
        took.as_millis(),
        elapsed.as_secs()
    );
    let what = if nodes < 500 {
        "a node joins, a Service flaps"
    } else {
        "500 nodes, 100 Services, one flaps: a join"
    };
    Row { what, result }
}
