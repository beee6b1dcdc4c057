//! Agents that start during an outage: they use the last known facts of an earlier agent.

use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, programs, until};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const TAKEN: &str = "taking over the last known facts of the node";
const CANNOT: &str = "can't take over the last known facts of the node";
const KNOWN: &str = "before that the node was Draining: cordoned (Unschedulable)";
/// The setting that shows the last known drain; the agent is stale from its start.
const KEEP: &str = "--on-stale=keep-drain";

/// A node whose agents follow each other.
struct Scenario {
    cluster: Cluster,
    port: String,
    dir: TempDir,
}

impl Scenario {
    fn begin() -> Self {
        Self { cluster: Cluster::start(), port: ports::free().to_string(), dir: tempfile::tempdir().unwrap() }
    }

    /// Starts the next agent, on the port of the one before it.
    fn agent(&self, args: &[&str]) -> Agent {
        let mut command = Command::new(programs::agent());
        command.args(args).arg("--stale-after=2s").env("LISTEN_PORT", &self.port);
        self.cluster.launch(command)
    }

    /// Starts the next agent with the state directory.
    fn remembering(&self, args: &[&str]) -> Agent {
        let state_dir = format!("--state-dir={}", self.dir.path().display());
        self.agent(&[args, &[&state_dir]].concat())
    }

    /// Drains the node, waits until the agent has seen it, and then kills the API server.
    fn outage(&self, agent: &Agent) {
        agent.wait_ready();
        self.cluster.sim.cordon(NODE);
        agent.wait_reason("Unschedulable");
        self.cluster.wait(self.cluster.sim.kill());
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("last-known.json")
    }

    /// Waits until the state file has the cordon, and returns it.
    fn wait_written(&self) -> Value {
        until("the cordon in the file", || {
            let file: Value = serde_json::from_slice(&fs::read(self.file()).ok()?).unwrap();
            (file["facts"]["unschedulable"] == true).then_some(file)
        })
    }

    fn api_returns(&self) {
        self.cluster.wait(self.cluster.sim.restart(false)).unwrap();
    }
}

fn status(agent: &Agent) -> Value {
    agent.get("/status.json").json()
}

/// Asserts that the agent answers Draining from facts that it took over.
fn holds_the_drain(agent: &Agent, from: &str) {
    let told = agent.health();
    assert_eq!((told.status, told.reason().as_deref(), told.is_stale()), (503, Some("Unschedulable"), true));
    agent.logs_once(TAKEN);
    assert_eq!(agent.logged(&format!("{TAKEN} from=\"{from}\"")), 1, "{}", agent.log_text());
    let page = agent.get("/").body;
    assert!(page.contains("by the agent before this one") && page.contains(KNOWN), "{page}");
    assert_eq!(status(agent)["flips"], json!([]), "nothing has flipped: it never said anything else");
}

#[test]
fn a_successor_holds_the_drain_that_its_predecessor_has_seen() {
    let scenario = Scenario::begin();
    let first = scenario.agent(&[KEEP]);
    scenario.outage(&first);
    first.wait_for("stale", ProbeReply::is_stale);
    let second = scenario.agent(&[KEEP]);
    holds_the_drain(&second, "predecessor");
    let age = |agent: &Agent| status(agent)["cache"]["age_ms"].as_u64().unwrap();
    let before = age(&second);
    first.terminate();
    // The facts keep their original date when a second successor takes them over.
    let third = scenario.agent(&[KEEP]);
    holds_the_drain(&third, "predecessor");
    assert!(age(&third) > before, "{} {before}", age(&third));
    second.terminate();
    scenario.cluster.sim.uncordon(NODE);
    scenario.api_returns();
    third.wait_ready();
    assert_eq!(status(&third)["cache"]["taken_over"], Value::Null);
}

#[test]
fn a_restarted_agent_reads_the_last_known_facts_of_a_killed_one() {
    let scenario = Scenario::begin();
    let mut first = scenario.remembering(&[KEEP]);
    scenario.outage(&first);
    scenario.wait_written();
    for _ in 0..2 {
        first.signal("KILL");
        first.wait_end();
        // In the second round the file has facts that the killed agent itself had taken over.
        first = scenario.remembering(&[KEEP]);
        holds_the_drain(&first, "state-dir");
    }
    scenario.api_returns();
    first.wait_for("fresh again", |told| told.status == 503 && !told.is_stale());
}

#[test]
fn a_predecessor_is_asked_for_its_facts_at_metrics_addr() {
    let scenario = Scenario::begin();
    let metrics = format!("--metrics-addr=127.0.0.1:{}", ports::free());
    let first = scenario.agent(&[KEEP, &metrics]);
    scenario.outage(&first);
    let second = scenario.agent(&[KEEP, &metrics]);
    let told = second.health();
    assert_eq!((told.status, told.is_stale()), (503, true));
    second.logs_once(TAKEN);
    // The predecessors do not serve their status on the probe port, where the third agent asks.
    let third = scenario.agent(&[KEEP]);
    third.logs_once(CANNOT);
    assert_eq!(third.logged("answered HTTP 404"), 2, "{}", third.log_text());
    drop(third);
    first.terminate();
    second.terminate();
    let fourth = scenario.agent(&[KEEP, &metrics]);
    assert_eq!(fourth.logged(TAKEN) + fourth.logged(CANNOT), 0, "{}", fourth.log_text());
}

#[test]
fn an_invalid_state_file_is_only_a_warning() {
    let scenario = Scenario::begin();
    let mut first = scenario.remembering(&[]);
    scenario.outage(&first);
    let good = scenario.wait_written();
    first.signal("KILL");
    first.wait_end();
    let with = |key: &str, value: Value| {
        let mut file = good.clone();
        file[key] = value;
        file.to_string().into_bytes()
    };
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let cut = good.to_string().into_bytes()[..100].to_vec();
    for (file, why) in [
        (Vec::new(), "it is not what an agent writes (line 1, column 0)"),
        (cut, "it is not what an agent writes (line 1, column 100)"),
        (vec![0; 4096], "it is not what an agent writes"),
        (b"[]".repeat(70_000), "longer than 131072 bytes"),
        (with("node", json!("n2")), "it is about the node \"n2\""),
        (with("node", json!("\u{1b}[31m")), "it is about the node \" [31m\""),
        (with("facts_format", Value::Null), "of an older version"),
        (with("facts_format", json!(99)), "its facts are in form 99"),
        (with("facts", json!({"unschedulable": 1})), "it is not what an agent writes"),
        (with("written_at_unix_ms", json!(now + 7_200_000)), "in the future"),
    ] {
        fs::write(scenario.file(), &file).unwrap();
        let agent = scenario.remembering(&[KEEP]);
        let told = agent.health();
        assert_eq!((told.status, told.is_stale()), (200, true), "{why}: {told:?}");
        agent.logs_once(CANNOT);
        assert_eq!(agent.logged(why), 1, "{why}: {}", agent.log_text());
        let (ended, log) = agent.terminate();
        assert!(ended.success() && !log.contains('\u{1b}'), "{log}");
        assert_eq!(fs::read(scenario.file()).unwrap(), file, "who knows nothing writes nothing");
    }
    fs::remove_file(scenario.file()).unwrap();
    fs::create_dir(scenario.file()).unwrap();
    let agent = scenario.remembering(&[]);
    agent.logs_once("it is no file");
}

/// Shows that the agent replaces the state file as a whole, and that other users can't read it.
#[test]
fn the_state_file_is_small_private_and_replaced_as_a_whole() {
    use std::os::unix::fs::PermissionsExt;
    let scenario = Scenario::begin();
    let agent = scenario.remembering(&[]);
    agent.wait_ready();
    for round in 0..3 {
        scenario.cluster.sim.cordon(NODE);
        agent.wait_reason("Unschedulable");
        let file = scenario.wait_written();
        assert_eq!(file["node"], NODE, "{round}");
        scenario.cluster.sim.uncordon(NODE);
        agent.wait_ready();
        until("the way back in the file", || {
            let file: Value = serde_json::from_slice(&fs::read(scenario.file()).unwrap()).unwrap();
            (file["facts"]["unschedulable"] == false).then_some(())
        });
    }
    let metadata = fs::metadata(scenario.file()).unwrap();
    assert!(metadata.len() < 4096 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    let mut names: Vec<_> =
        fs::read_dir(scenario.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["answering.json", "last-known.json"]);
}
