//! Agents that follow each other on one node: when the port opens, and which facts of an earlier agent a new one
//! takes over during an outage. None ever answers Ready for a drained node.

use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, NODE, Scenario, until};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

const TAKEN: &str = "taking over the last known facts of the node";
const CANNOT: &str = "can't take over all that an earlier agent knew";
const KNOWN: &str = "before that the node was Draining: cordoned (Unschedulable)";
/// The setting that shows the last known drain; the agent is stale from its start.
const KEEP: &str = "--on-stale=keep-drain";
const STALE_AFTER: &str = "--stale-after=2s";

/// Starts a cluster with a cordoned node, and returns the port of its agents.
fn start() -> (Scenario, String) {
    let cluster = Scenario::start();
    assert!(cluster.sim.cordon(NODE));
    (cluster, format!("--listen-port={}", ports::free()))
}

/// Starts the next agent on this port, with its state in the cluster's directory.
fn remembering(cluster: &Scenario, port: &str, args: &[&str]) -> Agent {
    let state_dir = format!("--state-dir={}", cluster.dir.path().display());
    cluster.agent(&[args, &[&state_dir, port]].concat())
}

fn state_file(cluster: &Scenario) -> PathBuf {
    cluster.file("last-known.json")
}

/// Waits until the state file has the cordon, and returns it.
fn wait_written(cluster: &Scenario) -> String {
    until("the cordon in the file", || {
        let text = fs::read_to_string(state_file(cluster)).ok()?;
        let file: Value = serde_json::from_str(&text).unwrap();
        (file["facts"]["unschedulable"] == true).then_some(text)
    })
}

#[track_caller]
fn drains(agent: &Agent, stale: bool) {
    let reply = agent.health();
    assert!(is_drained(&reply) && reply.is_stale() == stale, "{reply:?}");
}

fn is_drained(reply: &ProbeReply) -> bool {
    reply.status == 503 && reply.reason().as_deref() == Some("Unschedulable")
}

fn status(agent: &Agent) -> Value {
    agent.get("/status.json").json()
}

/// Asserts that the agent answers Draining from facts that it took over.
#[track_caller]
fn holds_the_drain(agent: &Agent, from: &str) {
    drains(agent, true);
    agent.logs_once(TAKEN);
    agent.logs_once(&format!("{TAKEN} from=\"{from}\""));
    let page = agent.get("/").body;
    assert!(page.contains("by the agent before this one") && page.contains(KNOWN), "{page}");
    assert_eq!(status(agent)["flips"], json!([]), "nothing has flipped: it never said anything else");
}

#[test]
fn without_an_api_server_the_port_opens_after_stale_after() {
    let (cluster, port) = start();
    cluster.kill_api();
    let started = Instant::now();
    let agent = cluster.agent(&["--stale-after=3s", &port]);
    assert!(started.elapsed() >= Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(agent.health().is_stale());
    agent.logs_once("listening without it");
}

/// Shows that a successor keeps its port closed while a fresh predecessor answers. New connections to the API
/// server stay without an answer; only the older one of the predecessor works.
#[test]
fn a_successor_beside_a_fresh_predecessor_waits_for_its_own_list() {
    let (cluster, port) = start();
    let first = cluster.agent(&[&port]);
    drains(&first, false);
    cluster.sim.ignore_new();
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| cluster.agent(&[STALE_AFTER, &port]));
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            drains(&first, false);
            assert!(!second.is_finished(), "it listens");
        }
        cluster.sim.heal();
        second.join().unwrap()
    });
    assert_eq!(second.logged("listening without it"), 0, "{}", second.log_text());
    second.logs_once("waiting, because the predecessor still answers");
    first.terminate();
    drains(&second, false);
}

#[test]
fn a_successor_holds_the_drain_that_its_predecessor_has_seen() {
    let (cluster, port) = start();
    let first = cluster.agent(&[KEEP, STALE_AFTER, &port]);
    cluster.kill_api();
    first.wait_for("stale", ProbeReply::is_stale);
    let second = cluster.agent(&[KEEP, STALE_AFTER, &port]);
    holds_the_drain(&second, "predecessor");
    first.terminate();
    cluster.sim.uncordon(NODE);
    cluster.restart_api();
    second.wait_ready();
    assert_eq!(status(&second)["cache"]["taken_over"], false);
}

/// The port opens after a second, since the killed agent answered until just now.
#[test]
fn a_restarted_agent_reads_the_last_known_facts_of_a_killed_one() {
    let (cluster, port) = start();
    let args = [KEEP, "--stale-after=20s"];
    let mut agent = remembering(&cluster, &port, &args);
    wait_written(&cluster);
    cluster.kill_api();
    for _ in 0..2 {
        drop(agent); // By SIGKILL, as in a crash.
        let started = Instant::now();
        // In the second round the file has facts that the killed agent itself had taken over.
        agent = remembering(&cluster, &port, &args);
        let waited = started.elapsed();
        assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(15), "{waited:?}");
        holds_the_drain(&agent, "state-dir");
    }
    let metadata = fs::metadata(state_file(&cluster)).unwrap();
    assert!(metadata.len() < 4096 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    cluster.restart_api();
    agent.wait_for("fresh again", |reply| is_drained(reply) && !reply.is_stale());
}

#[test]
fn an_invalid_state_file_is_only_a_warning() {
    let (cluster, port) = start();
    let first = remembering(&cluster, &port, &[]);
    let good = wait_written(&cluster);
    cluster.kill_api();
    drop(first);
    for (file, why) in [
        (good[..100].to_owned(), "it is not what an agent writes (line 1, column 100)"),
        ("[]".repeat(70_000), "longer than 131072 bytes"),
    ] {
        fs::write(state_file(&cluster), &file).unwrap();
        let agent = remembering(&cluster, &port, &[KEEP, STALE_AFTER]);
        let reply = agent.health();
        assert_eq!((reply.status, reply.is_stale()), (200, true), "{why}: {reply:?}");
        agent.logs_once(CANNOT);
        agent.logs_once(why);
    }
}
