//! The time at which the port opens: an agent that has just started never answers Ready for a drained node.

use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, programs, until};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const KEEP: &str = "--on-stale=keep-drain";

/// A drained node, and a port on which its agents follow each other.
struct Scenario {
    cluster: Cluster,
    port: String,
    dir: tempfile::TempDir,
}

impl Scenario {
    fn begin() -> Self {
        let (port, dir) = (ports::free().to_string(), tempfile::tempdir().unwrap());
        let scenario = Self { cluster: Cluster::start(), port, dir };
        assert!(scenario.cluster.sim.cordon(NODE));
        scenario
    }

    /// Starts an agent and returns when it listens.
    fn agent(&self, args: &[&str]) -> Agent {
        let mut command = Command::new(programs::agent());
        command.args(args).env("LISTEN_PORT", &self.port);
        self.cluster.launch(command)
    }

    fn state_dir(&self) -> String {
        format!("--state-dir={}", self.dir.path().display())
    }

    fn kill_api(&self) {
        self.cluster.wait(self.cluster.sim.kill());
    }

    fn restart_api(&self) {
        self.cluster.wait(self.cluster.sim.restart(false)).unwrap();
    }
}

/// Returns true if the reply is fresh or last known data of the drained node.
fn is_drained(reply: &ProbeReply) -> bool {
    reply.status == 503 && reply.reason().as_deref() == Some("Unschedulable")
}

#[test]
fn a_drained_node_that_boots_while_the_api_server_is_away_for_8_s_is_drained_from_the_first_answer_on() {
    let scenario = Scenario::begin();
    scenario.kill_api();
    let agent = thread::scope(|scope| {
        let agent = scope.spawn(|| scenario.agent(&[]));
        thread::sleep(Duration::from_secs(8));
        scenario.restart_api();
        agent.join().unwrap()
    });
    let first = agent.health();
    assert!(is_drained(&first) && !first.is_stale(), "{first:?}");
    assert_eq!(agent.logged("listening without it"), 0, "{}", agent.log_text());
}

#[test]
fn without_an_api_server_the_port_opens_after_stale_after() {
    let scenario = Scenario::begin();
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
    let scenario = Scenario::begin();
    let first = scenario.agent(&[]);
    assert!(is_drained(&first.health()));
    scenario.cluster.sim.ignore_new();
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| scenario.agent(&["--stale-after=2s"]));
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            let told = first.health();
            assert!(is_drained(&told) && !told.is_stale(), "{told:?}");
            assert!(!second.is_finished(), "it listens");
        }
        scenario.cluster.sim.heal();
        second.join().unwrap()
    });
    assert_eq!(second.logged("listening without it"), 0, "{}", second.log_text());
    second.logs_once("waiting, because the predecessor still answers");
    first.terminate();
    let told = second.health();
    assert!(is_drained(&told) && !told.is_stale(), "{told:?}");
}

#[test]
fn after_a_crash_during_an_outage_the_port_opens_after_the_startup_grace() {
    let scenario = Scenario::begin();
    let (state_dir, grace) = (scenario.state_dir(), Duration::from_secs(1));
    let args = [KEEP, &state_dir, "--stale-after=20s"];
    let mut first = scenario.agent(&args);
    assert!(is_drained(&first.health()));
    for file in ["last-known.json", "answering.json"] {
        until(file, || scenario.dir.path().join(file).exists().then_some(()));
    }
    scenario.kill_api();
    first.signal("KILL");
    first.wait_end();
    let started = Instant::now();
    let second = scenario.agent(&args);
    let waited = started.elapsed();
    assert!(waited >= grace && waited < grace * 15, "{waited:?}");
    assert!(is_drained(&second.health()));
    drop(second);
    // The agent ignores an invalid mark.
    std::fs::write(scenario.dir.path().join("answering.json"), "{\"boot_id\":\"x\",\"boottime_ms\":1}")
        .unwrap();
    let started = Instant::now();
    let third = scenario.agent(&[KEEP, &state_dir, "--stale-after=4s"]);
    assert!(started.elapsed() >= Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(is_drained(&third.health()));
}
