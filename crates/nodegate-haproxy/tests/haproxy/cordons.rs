//! A cordon, and the death of a node: with agents, without agents, and for a Service whose traffic stays on the
//! node. The tests measure the time to the last new connection.

use crate::lab::{Lab, node_address, node_name};
use crate::servers::Traffic;
use crate::servers::{Counts, Switches, count, serve_switched};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time without a request after which the last one was the last.
const QUIET: Duration = Duration::from_secs(3);

/// A lab whose agents and applications know which nodes are out and which are dead.
struct Site {
    lab: Lab,
    switches: Switches,
}

impl Site {
    async fn new(nodes: usize) -> Self {
        let (mut lab, switches) = (Lab::new(nodes).await, Switches::default());
        lab.check_port = serve_switched(lab.checked.clone(), &switches).await;
        // As in a package: the default.
        lab.reload_interval = "5s";
        Self { lab, switches }
    }

    /// Cordons a node as its agent sees it, too.
    fn cordon(&self, index: usize) {
        self.switches.draining.lock().unwrap().insert(node_address(index));
        assert!(self.lab.sim.cordon(&node_name(index)));
    }

    fn kill(&self, index: usize) {
        self.switches.dead.lock().unwrap().insert(node_address(index));
    }
}

/// Returns the time from then to the last request that reached a node.
async fn last_request(lab: &Lab, counts: &Counts, index: usize, then: Instant) -> Duration {
    let (mut seen, mut last) = (count(counts, index), Duration::ZERO);
    while then.elapsed() < last + QUIET {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = count(counts, index);
        if now != seen {
            (seen, last) = (now, then.elapsed());
        }
        assert!(last < Duration::from_mins(1), "node {index} still gets requests\n{}", lab.log());
    }
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_and_a_death_with_agents() {
    let mut site = Site::new(3).await;
    site.lab.node_port = serve_switched(
        site.lab.served.clone(),
        &Switches { draining: Arc::default(), ..site.switches.clone() },
    )
    .await;
    let port = site.lab.publish().await;
    let lab = &site.lab;
    let traffic = Traffic::start(port);
    lab.until_asked(0).await;
    site.cordon(0);
    last_request(lab, &lab.served, 0, Instant::now()).await;
    let backend = format!("nodegate_default_web_{port}");
    lab.until("its weight is 0, too", async || lab.weight(&backend, &node_name(0)).await == Some(0)).await;
    traffic.none_lost(lab);
    let traffic = Traffic::start(port);
    lab.until_asked(1).await;
    let died = Instant::now();
    site.kill(1);
    traffic_moves(lab, &traffic, died).await;
}

/// Waits until no request fails any more. Returns the time from then to the last failed one.
async fn traffic_moves(lab: &Lab, traffic: &Traffic, then: Instant) -> Duration {
    loop {
        tokio::time::sleep(QUIET).await;
        let last = traffic.back_after(then);
        if then.elapsed() > last + QUIET {
            return last;
        }
        assert!(then.elapsed() < Duration::from_mins(1), "requests still fail\n{}", lab.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_without_agents_is_obeyed_and_the_failing_checks_are_named() {
    let mut site = Site::new(3).await;
    site.lab.check_port = ports::free();
    let port = site.lab.publish().await;
    let lab = &site.lab;
    lab.until_logged("no node passes HAProxy's check").await;
    lab.until_metric("nodegate_haproxy_nodes_passing", 0.0).await;
    let tables = lab.explain();
    assert!(tables.contains("No node passes HAProxy's check.") && tables.contains("fails"), "{tables}");
    let traffic = Traffic::start(port);
    lab.until_asked(0).await;
    assert!(lab.sim.cordon(&node_name(0)));
    last_request(lab, &lab.served, 0, Instant::now()).await;
    for index in [1, 2] {
        assert!(lab.sim.cordon(&node_name(index)));
    }
    lab.until_asked(0).await;
    traffic.none_lost(lab);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_and_a_death_of_a_local_service_on_kube_proxy_s_port() {
    let mut site = Site::new(3).await;
    let lab = &mut site.lab;
    // kube-proxy does not know of drains.
    let alive = Switches { draining: Arc::default(), ..site.switches.clone() };
    let health_port = serve_switched(Counts::default(), &alive).await;
    lab.node_port = serve_switched(lab.served.clone(), &alive).await;
    let port = ports::free();
    let mut local = lab.service("local", port, &json!({}));
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    local["spec"]["healthCheckNodePort"] = json!(health_port);
    lab.sim.apply(local).unwrap();
    lab.start(&[port]).await;
    let lab = &site.lab;
    let traffic = Traffic::start(port);
    for index in 0..3 {
        lab.until_asked(index).await;
    }
    // kube-proxy answers 200 as long as there is an endpoint: the watch alone drains.
    site.cordon(0);
    last_request(lab, &lab.served, 0, Instant::now()).await;
    traffic.none_lost(lab);
    let traffic = Traffic::start(port);
    let died = Instant::now();
    site.kill(1);
    traffic_moves(lab, &traffic, died).await;
    // A healthCheckNodePort without a listener fails all, and does not serve where there is no endpoint.
}
