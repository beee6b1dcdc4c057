//! Waits for balancers, and what a successor knows of them. The core's own tests cover the same rules for longer times.

mod hooks;
mod pods;

use nodegate_kube_sim::Sim;
use nodegate_testbed::agent::run;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::{Agent, NODE, Scenario, http, until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Runs `nodegate wait` with these arguments to its end.
fn wait(address: SocketAddr, args: &[&str]) -> (i32, Vec<String>) {
    let output = run(&[&["wait", "--addr", &address.to_string()], args].concat(), &[]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(['\u{1b}', '\r']), "no terminal, no control characters: {text:?}");
    (output.status.code().unwrap(), text.lines().map(str::to_owned).collect())
}

const SERVICE: &str = "shop/web";
const HEALTH: &str = "/health?drain=503";

/// Starts an agent that knows its probers: a balancer for each path, at an address of its own.
fn asked_for(paths: &[&'static str]) -> (Scenario, Agent, Vec<Prober>) {
    let cluster = Scenario::start();
    cluster.allow_services();
    endpoints(&cluster, 1);
    let agent = cluster.succeeding_agent(&["--watch-service=shop/web", "--stale-after=5s"]);
    let start = |(number, path): (u8, &&'static str)| balancer(number, &agent, path);
    let balancers = (1..).zip(paths).map(start).collect();
    let is_regular = |prober: &&Value| prober["standing"] == "regular";
    until("all to be regular", || {
        let status = agent.get("/status.json").json();
        let regular = status["probers"].as_array().unwrap().iter().filter(is_regular).count();
        (regular == paths.len()).then_some(())
    });
    (cluster, agent, balancers)
}

/// Probes ten times a second, each time on a new connection.
fn balancer(number: u8, agent: &Agent, path: &'static str) -> Prober {
    let from = Ipv4Addr::new(127, 0, 9, number);
    let ask = move |to| {
        let asked = http::connect_from(from, to, http::TIMEOUT).and_then(|mut stream| {
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
            stream.read_to_end(&mut Vec::new())
        });
        // An agent that ends may refuse it.
        asked.map_or_else(|error| Saw::Failed(error.to_string()), |_| Saw::Answer(200, String::new()))
    };
    Prober::start(agent.address(), ask, 10, 1)
}

/// Returns when the agent has seen the change. A request for its health would be one of a prober.
fn cordon(cluster: &Scenario, agent: &Agent, cordoned: bool) {
    let (set, verdict): (fn(&Sim, &str) -> bool, _) =
        if cordoned { (Sim::cordon, "draining") } else { (Sim::uncordon, "ready") };
    assert!(set(&cluster.sim, NODE));
    until(verdict, || (agent.get("/drain.json").json()["verdict"] == verdict).then_some(()));
}

fn endpoints(cluster: &Scenario, here: u64) {
    cluster.sim.set_endpoints("shop", "web", NODE, here);
}

/// Replaces an agent during a drain: the successor takes over the probers, so the acknowledgement does not start over.
#[test]
fn a_successor_knows_the_probers_of_its_predecessor() {
    const TAKEN: &str = "took over the probers of the predecessor probers=1";
    let (cluster, before, _balancers) = asked_for(&[HEALTH]);
    cordon(&cluster, &before, true);
    let began = Instant::now();
    let after = cluster.agent(&[&format!("--listen-port={}", before.address().port())]);
    assert_eq!(after.logged(TAKEN), 1, "{}", after.log_text());
    drop(before);
    let drain = || after.get("/drain.json").json();
    assert!(drain()["not_known"].is_null() && drain()["probers"] == 1, "{}", drain());
    until("acknowledged", || (drain()["acknowledged"] == true).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}: it has listened itself", began.elapsed());
    let status = after.get("/status.json").json();
    assert!(status["drain"]["listening_ms"].as_u64().unwrap() > 300_000, "{status}");
}
