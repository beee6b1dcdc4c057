//! Servers change their state without a reload.

use crate::Row;
use crate::lab::{Lab, node_name};
use crate::servers::{agents, count, serve};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_drains_without_a_reload() {
    flips(10).await;
}

pub(crate) async fn flips(count: usize) -> Row {
    let mut lab = Lab::new(4).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let before = lab.processes_now().await;
    let traffic = Traffic::start(port);
    let mut times = Vec::new();
    for flip in 0..count {
        let node = node_name(flip % 4);
        let began = Instant::now();
        assert!(lab.sim.cordon(&node));
        lab.until("it drains", async || lab.is_draining(&backend, &node).await).await;
        times.push(began.elapsed());
        lab.until_spared(flip % 4).await;
        let uncordoned = Instant::now();
        assert!(lab.sim.uncordon(&node));
        lab.until("it is back", async || lab.is_admin_ready(&backend, &node).await).await;
        times.push(uncordoned.elapsed());
        lab.until_asked(flip % 4).await;
    }
    lab.sim.set_ready(&node_name(1), "False", "KubeletNotReady");
    lab.until("NotReady is maintenance", async || {
        lab.admin_state(&backend, &node_name(1)).await.is_some_and(|state| state & 0x23 != 0)
    })
    .await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    assert_eq!(lab.processes_now().await, before, "no reload, the same worker\n{}", lab.log());
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    let result = format!(
        "{count} times each way: p50 {:.1?}, p90 {:.1?}, p99 {:.1?}; out: 0 requests; back: some; same PID; {good} requests, 0 lost",
        at(50),
        at(90),
        at(99)
    );
    Row { what: "cordon -> tracking server in drain", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_server_stays_drained_over_reloads_and_restarts() {
    states_survive_a_reload().await;
}

pub(crate) async fn states_survive_a_reload() -> Row {
    let other = ports::free();
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    lab.sim.cordon(&node_name(0));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let traffic = Traffic::start(port);
    let drained = IpAddr::from([127, 1, 0, 1]);
    let served = lab.served.clone();
    let count = || served.lock().unwrap().get(&drained).copied().unwrap_or(0);
    let rest = Duration::from_millis(100);
    let before = lab.at_rest("what the drained node serves", async || count(), rest).await;
    for round in 0..5 {
        lab.sim.apply(lab.service(&format!("more-{round}"), ports::free(), &json!({}))).unwrap();
        lab.until("it is reloaded", async || {
            lab.metric("nodegate_haproxy_applies_total{kind=\"reloaded\"}") == Some(f64::from(round) + 1.0)
        })
        .await;
    }
    // A process that HAProxy's operator starts has the states, too, even if the program does not run then.
    lab.program.take().unwrap().kill().await.unwrap();
    lab.master().reload().await.unwrap();
    assert!(lab.is_draining(&backend, &node_name(0)).await, "{}", lab.log());
    lab.start_program(&[]);
    lab.sim.apply(lab.service("last", other, &json!({}))).unwrap();
    let last = format!("nodegate_default_last_{other}");
    lab.until("the next one is loaded", async || lab.is_draining(&last, &node_name(0)).await).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    assert_eq!(count(), before, "the drained node was asked");
    lab.sim.uncordon(&node_name(0));
    lab.until("it is back", async || lab.is_admin_ready(&backend, &node_name(0)).await).await;
    let result = format!("7 reloads, 1 program restart: drained node got 0 of {good} requests, 0 lost");
    Row { what: "drain over reloads", result }
}

/// Looks at a server for three of the agent's intervals, with a reload among them.
async fn drained_in_each_look(lab: &Lab, backend: &str, node: &str) -> u32 {
    let (began, mut looks) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(1600) {
        // A master that restarts does not answer.
        if let Some(state) = lab.admin_state(backend, node).await {
            assert!(state & 0x18 != 0, "{}", lab.log());
            looks += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_disagrees_does_not_end_a_drain() {
    stubborn_agent().await;
}

pub(crate) async fn stubborn_agent() -> Row {
    let mut lab = Lab::new(3).await;
    lab.agent_port = agents(|_| b"up ready\n").await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let node = node_name(0);
    lab.sim.cordon(&node);
    lab.until("it drains", async || lab.is_draining(&backend, &node).await).await;
    let next = ports::free();
    let traffic = Traffic::start(port);
    lab.until_spared(0).await;
    let before = count(&lab.served, 0);
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    let other = format!("nodegate_default_next_{next}");
    let looks = drained_in_each_look(&lab, &backend, &node).await;
    lab.until("it drains in the new backend", async || lab.is_draining(&other, &node).await).await;
    assert_eq!(count(&lab.served, 0), before, "{}", lab.log());
    lab.sim.uncordon(&node);
    lab.until_asked(0).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!(
        "drained in {looks} of {looks} looks, over a reload; it got 0 requests until its uncordon; {good} in all"
    );
    Row { what: "agent says ready, API says cordoned", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_drained_is_never_ready_over_a_reload() {
    draining_agent().await;
}

pub(crate) async fn draining_agent() -> Row {
    let mut lab = Lab::new(3).await;
    lab.agent_port = agents(|at| {
        let drains = at == IpAddr::from([127, 1, 0, 1]);
        if drains { b"up drain\n" } else { b"up ready\n" }
    })
    .await;
    let port = lab.publish().await;
    let (backend, node) = (format!("nodegate_default_web_{port}"), node_name(0));
    lab.until("its agent drains it", async || lab.is_draining(&backend, &node).await).await;
    let before = lab.processes_now().await;
    let next = ports::free();
    let traffic = Traffic::start(port);
    lab.until_spared(0).await;
    let asked = count(&lab.served, 0);
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    let looks = drained_in_each_look(&lab, &backend, &node).await;
    let reloads = async || lab.processes_now().await.reloads;
    lab.until("one reload", async || reloads().await == before.reloads + 1).await;
    assert_eq!(lab.metric("nodegate_haproxy_server_moves_total{kind=\"ready\"}"), None);
    assert_eq!(count(&lab.served, 0), asked, "{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("drained in {looks} of {looks} looks, over a reload; it got 0 of {good} requests");
    Row { what: "agent says drain, API says nothing", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_traffic_goes_where_the_endpoints_are() {
    local_traffic().await;
}

pub(crate) async fn local_traffic() -> Row {
    let port = ports::free();
    let mut lab = Lab::new(4).await;
    // Nodes 0 and 1 have an endpoint.
    let health_port = serve(Arc::default(), |at| at <= IpAddr::from([127, 1, 0, 2])).await;
    let mut service = lab.service("local", port, &json!({}));
    service["spec"]["type"] = json!("LoadBalancer");
    service["spec"]["externalTrafficPolicy"] = json!("Local");
    service["spec"]["healthCheckNodePort"] = json!(health_port);
    lab.sim.apply(service).unwrap();
    lab.start(&[port]).await;
    let backend = format!("nodegate_default_local_{port}");
    let status = async |node: usize| lab.status(&backend, &node_name(node)).await;
    lab.until("checks find the endpoints", async || {
        let up = status(0).await.starts_with("UP") && status(1).await.starts_with("UP");
        up && status(2).await == "DOWN" && status(3).await == "DOWN"
    })
    .await;
    lab.served.lock().unwrap().clear();
    let traffic = Traffic::start(port);
    lab.sim.cordon(&node_name(0));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    // The results of the checks survive the reload, too.
    lab.sim.apply(lab.service("next", ports::free(), &json!({}))).unwrap();
    lab.until("it is reloaded", async || {
        lab.metric("nodegate_haproxy_applies_total{kind=\"reloaded\"}") == Some(1.0)
    })
    .await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let served = lab.served.lock().unwrap().clone();
    assert!(served.keys().all(|at| *at <= IpAddr::from([127, 1, 0, 2])), "{served:?}");
    let result = format!("{good} requests, all to the 2 nodes with endpoints, over a reload");
    Row { what: "externalTrafficPolicy: Local", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_mass_failures_and_a_restarted_haproxy() {
    let mut lab = Lab::new(4).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let before = lab.processes_now().await;
    let weigh = |weight: &str| {
        let set = |node: &mut serde_json::Value| {
            node["metadata"]["annotations"]["nodegate.io/haproxy-weight"] = json!(weight);
        };
        assert!(lab.sim.edit_node(&node_name(0), "test", set));
    };
    weigh("7");
    lab.until("the weight is set", async || lab.weight(&backend, &node_name(0)).await == Some(7)).await;
    lab.until("the file has it too", async || {
        std::fs::read_to_string(&lab.config).unwrap().contains("weight 7 track")
    })
    .await;
    assert_eq!(lab.processes_now().await, before, "no reload\n{}", lab.log());

    // Two of four nodes may be put into maintenance. If a third one follows, the API is probably wrong.
    let maint = async |node: usize| {
        lab.admin_state(&backend, &node_name(node)).await.is_some_and(|state| state & 0x23 != 0)
    };
    for node in [1, 2] {
        lab.sim.set_ready(&node_name(node), "False", "KubeletNotReady");
    }
    lab.until("two are out", async || maint(1).await && maint(2).await).await;
    lab.sim.set_ready(&node_name(3), "False", "KubeletNotReady");
    lab.until("all are left to the checks", async || !maint(1).await && !maint(2).await && !maint(3).await)
        .await;
    for node in [1, 2, 3] {
        lab.sim.set_ready(&node_name(node), "True", "KubeletReady");
    }
    lab.sim.cordon(&node_name(2));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(2)).await).await;

    let saved = lab.state("servers");
    lab.until("the state is saved", async || {
        let text = std::fs::read_to_string(&saved).unwrap();
        let line = text.lines().find(|line| line.contains(&node_name(2))).unwrap_or_default();
        line.split(' ').nth(6) == Some("8")
    })
    .await;

    // The operator restarts HAProxy without telling the program.
    lab.stop_haproxy();
    lab.start_haproxy().await;
    assert!(lab.is_draining(&backend, &node_name(2)).await, "{}", lab.log());
    assert_eq!(lab.weight(&backend, &node_name(0)).await, Some(7));
    lab.sim.uncordon(&node_name(2));
    lab.until("it is back", async || lab.is_admin_ready(&backend, &node_name(2)).await).await;
    lab.sim.cordon(&node_name(1));
    lab.until("the next one drains", async || lab.is_draining(&backend, &node_name(1)).await).await;
}
