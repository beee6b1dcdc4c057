//! Agents that follow each other on one node: when the port opens, and which facts of an earlier agent a new one
//! takes over during an outage. None ever answers Ready for a drained node.

use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TAKEN: &str = "taking over the last known facts of the node";
const CANNOT: &str = "can't take over all that an earlier agent knew";
const KNOWN: &str = "before that the node was Draining: cordoned (Unschedulable)";
/// The setting that shows the last known drain; the agent is stale from its start.
const KEEP: &str = "--on-stale=keep-drain";
const STALE_AFTER: &str = "--stale-after=2s";

/// A cordoned node, and a port on which its agents follow each other.
struct Scenario {
    cluster: Cluster,
    port: String,
    dir: TempDir,
}

impl Scenario {
    fn start() -> Self {
        let (port, dir) = (format!("--listen-port={}", ports::free()), tempfile::tempdir().unwrap());
        let scenario = Self { cluster: Cluster::start(), port, dir };
        assert!(scenario.cluster.sim.cordon(NODE));
        scenario
    }

    /// Starts the next agent and returns when it listens.
    fn agent(&self, args: &[&str]) -> Agent {
        self.cluster.agent(&[args, &[&self.port]].concat())
    }

    /// Starts the next agent with the state directory.
    fn remembering(&self, args: &[&str]) -> Agent {
        let state_dir = format!("--state-dir={}", self.dir.path().display());
        self.agent(&[args, &[&state_dir]].concat())
    }

    fn kill_api(&self) {
        self.cluster.wait(self.cluster.sim.kill());
    }

    fn restart_api(&self) {
        self.cluster.wait(self.cluster.sim.restart(false)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("last-known.json")
    }

    /// Waits until the state file has the cordon, and returns it.
    fn wait_written(&self) -> String {
        until("the cordon in the file", || {
            let text = fs::read_to_string(self.file()).ok()?;
            let file: Value = serde_json::from_str(&text).unwrap();
            (file["facts"]["unschedulable"] == true).then_some(text)
        })
    }
}

/// Kills an agent at once, as a crash does.
fn crash(mut agent: Agent) {
    agent.signal("KILL");
    agent.wait_end();
}

/// Asserts that the agent answers Draining, from a cache that is stale or not.
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

/// Asserts that the agent answers Draining from facts that it took over, and returns their age.
#[track_caller]
fn holds_the_drain(agent: &Agent, from: &str) -> u64 {
    drains(agent, true);
    agent.logs_once(TAKEN);
    agent.logs_once(&format!("{TAKEN} from=\"{from}\""));
    let page = agent.get("/").body;
    assert!(page.contains("by the agent before this one") && page.contains(KNOWN), "{page}");
    let status = status(agent);
    assert_eq!(status["flips"], json!([]), "nothing has flipped: it never said anything else");
    status["cache"]["age_ms"].as_u64().unwrap()
}

#[test]
fn an_agent_that_boots_while_the_api_server_is_away_for_8_s_waits_for_it() {
    let scenario = Scenario::start();
    scenario.kill_api();
    let agent = thread::scope(|scope| {
        let agent = scope.spawn(|| scenario.agent(&[]));
        thread::sleep(Duration::from_secs(8));
        scenario.restart_api();
        agent.join().unwrap()
    });
    drains(&agent, false);
    assert_eq!(agent.logged("listening without it"), 0, "{}", agent.log_text());
}

#[test]
fn without_an_api_server_the_port_opens_after_stale_after() {
    let scenario = Scenario::start();
    scenario.kill_api();
    let started = Instant::now();
    let agent = scenario.agent(&["--stale-after=3s"]);
    assert!(started.elapsed() >= Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(agent.health().is_stale());
    agent.logs_once("listening without it");
}

/// Shows that a successor keeps its port closed while a fresh predecessor answers. New connections to the API
/// server stay without an answer; only the older one of the predecessor works.
#[test]
fn a_successor_beside_a_fresh_predecessor_waits_for_its_own_list() {
    let scenario = Scenario::start();
    let first = scenario.agent(&[]);
    drains(&first, false);
    scenario.cluster.sim.ignore_new();
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| scenario.agent(&[STALE_AFTER]));
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            drains(&first, false);
            assert!(!second.is_finished(), "it listens");
        }
        scenario.cluster.sim.heal();
        second.join().unwrap()
    });
    assert_eq!(second.logged("listening without it"), 0, "{}", second.log_text());
    second.logs_once("waiting, because the predecessor still answers");
    first.terminate();
    drains(&second, false);
}

#[test]
fn after_a_crash_during_an_outage_the_port_opens_after_a_second() {
    let scenario = Scenario::start();
    let args = [KEEP, "--stale-after=20s"];
    let first = scenario.remembering(&args);
    scenario.wait_written();
    scenario.kill_api();
    crash(first);
    let started = Instant::now();
    let second = scenario.remembering(&args);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(15), "{waited:?}");
    assert!(is_drained(&second.health()));
}

#[test]
fn a_successor_holds_the_drain_that_its_predecessor_has_seen() {
    let scenario = Scenario::start();
    let first = scenario.agent(&[KEEP, STALE_AFTER]);
    scenario.kill_api();
    first.wait_for("stale", ProbeReply::is_stale);
    let second = scenario.agent(&[KEEP, STALE_AFTER]);
    let before = holds_the_drain(&second, "predecessor");
    first.terminate();
    // The facts keep their original date when a second successor takes them over.
    let third = scenario.agent(&[KEEP, STALE_AFTER]);
    let age = holds_the_drain(&third, "predecessor");
    assert!(age > before, "{age} {before}");
    second.terminate();
    scenario.cluster.sim.uncordon(NODE);
    scenario.restart_api();
    third.wait_ready();
    assert_eq!(status(&third)["cache"]["taken_over"], false);
}

#[test]
fn a_restarted_agent_reads_the_last_known_facts_of_a_killed_one() {
    let scenario = Scenario::start();
    let mut agent = scenario.remembering(&[KEEP, STALE_AFTER]);
    scenario.wait_written();
    scenario.kill_api();
    for _ in 0..2 {
        crash(agent);
        // In the second round the file has facts that the killed agent itself had taken over.
        agent = scenario.remembering(&[KEEP, STALE_AFTER]);
        holds_the_drain(&agent, "state-dir");
    }
    let metadata = fs::metadata(scenario.file()).unwrap();
    assert!(metadata.len() < 4096 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    scenario.restart_api();
    agent.wait_for("fresh again", |reply| is_drained(reply) && !reply.is_stale());
}

#[test]
fn an_invalid_state_file_is_only_a_warning() {
    let scenario = Scenario::start();
    let first = scenario.remembering(&[]);
    let good = scenario.wait_written();
    scenario.kill_api();
    crash(first);
    for (file, why) in [
        (good[..100].to_owned(), "it is not what an agent writes (line 1, column 100)"),
        ("[]".repeat(70_000), "longer than 131072 bytes"),
    ] {
        fs::write(scenario.file(), &file).unwrap();
        let agent = scenario.remembering(&[KEEP, STALE_AFTER]);
        let reply = agent.health();
        assert_eq!((reply.status, reply.is_stale()), (200, true), "{why}: {reply:?}");
        agent.logs_once(CANNOT);
        agent.logs_once(why);
        let (ended, log) = agent.terminate();
        assert!(ended.success() && !log.contains('\u{1b}'), "{log}");
        assert_eq!(fs::read_to_string(scenario.file()).unwrap(), file, "an agent without facts writes none");
    }
    fs::remove_file(scenario.file()).unwrap();
    fs::create_dir(scenario.file()).unwrap();
    scenario.remembering(&[STALE_AFTER]).logs_once("Is a directory");
}
