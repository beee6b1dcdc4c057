//! Tests of the real program: on a real D-Bus daemon, with a logind and an agent that the tests play.

#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic; the macro of D-Bus hides that these functions are a test's"
)]

mod logind;
mod reboots;

use logind::Logind;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::{Program, signal};
use nodegate_testbed::stub::{Act, Stub, answer};
use nodegate_testbed::{until, until_or};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

struct Scenario {
    logind: Logind,
    agent: Stub,
    address: SocketAddr,
    directory: TempDir,
    program: Option<Program>,
}

fn reply(status: &str, state: &str, why: &str) -> Act {
    let json =
        format!(r#"{{"goal":"acknowledged","state":"{state}","why":"{why}","drain":{DRAIN},"probers":[]}}"#);
    answer(status, &json)
}

fn waiting() -> Act {
    reply("504 Gateway Timeout", "waiting", "10.0.0.1 /health")
}

fn acknowledged() -> Act {
    reply("200 OK", "reached", "2 balancers")
}

impl Scenario {
    fn set() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let agent = Stub::start_at(address, waiting());
        let directory = tempfile::tempdir().unwrap();
        Self { logind: Logind::start(), agent, address, directory, program: None }
    }

    fn begin() -> Self {
        let mut scenario = Self::set();
        scenario.start();
        scenario.holds("45000");
        scenario
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nodegate-shutdown"));
        command.env("DBUS_SYSTEM_BUS_ADDRESS", self.logind.address());
        command.env("NODEGATE_AGENT", self.address.to_string());
        command.env("NODEGATE_HOST_SIGNALS", self.directory.path());
        command
    }

    fn start(&mut self) {
        self.program = Some(Program::start_into(&mut self.command(), &self.file("log")));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn is_down(&self) -> bool {
        self.file("shutdown").exists()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    #[track_caller]
    fn until(&self, what: &str, met: impl Fn() -> bool) {
        until_or(|| met().then_some(()), || format!("waited for {what}: {}", self.log()));
    }

    /// Waits until exactly one lock is held, and the agent can read of this delay and of no shutdown.
    #[track_caller]
    fn holds(&self, delay_ms: &str) {
        let reads = || fs::read_to_string(self.file("lock")).is_ok_and(|text| text.trim() == delay_ms);
        self.until("the lock", || self.logind.host().locks() == 1 && reads() && !self.is_down());
    }

    #[track_caller]
    fn lets_go(&self) {
        let gone = || self.logind.host().locks() == 0 && !self.file("lock").exists();
        self.until("the end of the lock", gone);
        assert!(self.is_down(), "the agent answers until the end: {}", self.log());
    }
}

#[test]
fn a_shutdown_waits_until_the_agent_says_that_all_have_acknowledged() {
    let scenario = Scenario::begin();
    scenario.logind.prepare(true, true);
    scenario.until("the file", || scenario.is_down());
    // Not acknowledged yet, an agent whose successor listens, and one with too much to do.
    let others = ["307 Temporary Redirect", "429 Too Many Requests", "503 Service Unavailable"];
    for act in [waiting()].into_iter().chain(others.map(|status| answer(status, ""))) {
        scenario.agent.now(act);
        let asked = scenario.agent.asked();
        scenario.until("more questions", || scenario.agent.asked() > asked + 2);
        assert_eq!(scenario.logind.host().locks(), 1, "{}", scenario.log());
    }
    scenario.agent.now(acknowledged());
    scenario.lets_go();
    assert!(scenario.log().contains("the agent says: acknowledged: 2 balancers; letting the shutdown go on"));
}

#[test]
fn an_agent_that_gives_no_answer_does_not_keep_the_host() {
    for act in [Act::Hang, answer("404 Not Found", ""), answer("200 OK", "text"), Act::Say(String::new())] {
        let scenario = Scenario::begin();
        scenario.agent.now(act);
        scenario.logind.prepare(true, true);
        scenario.lets_go();
        assert!(scenario.log().contains("the agent does not answer"), "{}", scenario.log());
    }
}

/// systemd 252 sends a signal of a cancelled shutdown, systemd 257 sends none. The lock may be gone by then.
#[test]
fn a_cancelled_shutdown_brings_the_node_back_and_the_lock_again() {
    for (says_so, act) in [(true, waiting()), (false, waiting()), (false, acknowledged())] {
        let scenario = Scenario::begin();
        let is_answered = matches!(&act, Act::Say(text) if text.contains("200 OK"));
        scenario.agent.now(act);
        scenario.logind.prepare(true, true);
        scenario.until("the file", || scenario.is_down());
        if is_answered {
            scenario.lets_go();
        }
        scenario.logind.prepare(false, says_so);
        scenario.holds("45000");
        let before = usize::from(!is_answered);
        assert_eq!(scenario.logind.host().held_before, [0, before], "a new lock before the old one ends");
    }
}

/// logind gives no lock once it is at it. The program does not take that for the end of the shutdown.
#[test]
fn a_program_that_starts_too_late_tells_the_agent_at_once() {
    let mut scenario = Scenario::set();
    fs::write(scenario.file("lock"), "5000\n").unwrap();
    scenario.logind.host().too_late = true;
    scenario.start();
    scenario.until("the file", || scenario.is_down());
    let asked = scenario.agent.asked();
    scenario.until("more questions", || scenario.agent.asked() > asked + 3);
    assert!(scenario.is_down() && scenario.log().matches("going down").count() == 1, "{}", scenario.log());
    scenario.logind.host().too_late = false;
    scenario.holds("45000");
}

#[test]
fn the_lock_survives_restarts_of_logind_and_of_the_bus() {
    let mut scenario = Scenario::begin();
    scenario.logind.restart();
    scenario.until("another lock", || scenario.logind.host().held_before == [0, 1]);
    scenario.holds("45000");
    scenario.logind.start_bus();
    scenario.until("the end of the bus in the log", || scenario.log().contains("does not answer; retrying"));
    assert_eq!(scenario.logind.host().locks(), 1, "logind goes on, and knows the lock");
    scenario.logind.restart();
    scenario.until("another lock", || scenario.logind.host().held_before == [0, 1, 1]);
    scenario.holds("45000");
}

/// A bus daemon that is stopped accepts connections, and says nothing.
#[test]
fn a_bus_that_says_nothing_is_given_up_and_tried_again() {
    let scenario = Scenario::set();
    let _silent = UnixListener::bind(scenario.file("bus")).unwrap();
    let bus = format!("unix:path={}", scenario.file("bus").display());
    let mut command = scenario.command();
    let _program = Program::start_into(command.env("DBUS_SYSTEM_BUS_ADDRESS", bus), &scenario.file("log"));
    scenario.until("the end of the wait", || scenario.log().contains("does not answer; retrying"));
    assert!(scenario.log().contains("timed out"), "{}", scenario.log());
}

/// The kubelet has logind read its configuration again, with another delay.
#[test]
fn the_delay_is_read_at_each_signal_and_bounds_the_wait() {
    let scenario = Scenario::begin();
    scenario.logind.host().delay_usec = 3_000_000;
    scenario.logind.prepare(true, true);
    scenario.lets_go();
    let log = scenario.log();
    assert!(log.contains("not every load balancer had acknowledged in time"), "{log}");
}

#[test]
fn a_program_that_ends_leaves_no_signal_behind_on_a_host_that_stays_up() {
    let mut scenario = Scenario::begin();
    drop(scenario.program.take());
    assert!(!scenario.file("lock").exists() && !scenario.is_down(), "{}", scenario.log());
    assert_eq!(scenario.logind.host().locks(), 0);
}

/// `systemctl start reboot.target` asks no logind.
#[test]
fn a_program_that_systemd_ends_for_a_shutdown_waits_until_all_have_acknowledged() {
    let mut scenario = Scenario::begin();
    scenario.logind.host().state = "stopping";
    let program = scenario.program.take().unwrap();
    signal(program.pid(), "TERM");
    scenario.until("the file", || scenario.is_down());
    let asked = scenario.agent.asked();
    scenario.until("another question", || scenario.agent.asked() > asked + 1);
    scenario.agent.now(acknowledged());
    until("the end", || {
        let state = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
    assert!(scenario.is_down() && scenario.log().contains("acknowledged: 2 balancers"), "{}", scenario.log());
}

const DRAIN: &str = r#"{"node":"n1","uid":"u","start_id":"s","verdict":"ready","since_ms":1,"stale":false,"acknowledged":false,
    "acknowledged_ready":true,"released":false,"acknowledged_probers":2,"probers":2,"needs_ms":8000,"waiting_for":[],"balancers":false,
    "host":{"shutdown":false,"lock":true,"delay_ms":45000},
    "settings":{"fall":3,"rise":2,"interval_ms":null,"probers":null}}"#;

/// What `DRAIN` says of the files.
const HOST: &str = r#""host":{"shutdown":false,"lock":true,"delay_ms":45000},"#;

#[test]
fn status_says_in_three_lines_what_a_reboot_would_do() {
    let scenario = Scenario::begin();
    let held = "held; a shutdown is delayed, at most 45 s";
    let agent = "says Ready; load balancers: 2, acknowledged within 8 s";
    let waits =
        "waits until every load balancer has acknowledged, at most 45 s; reboot at 2027-01-15 08:00:00 UTC";
    let slow = "at most 45 s, but the slowest load balancer needs 46 s";
    let unseen = "does not wait for load balancers: the agent does not see the lock: its --host-signals is another directory";
    let no_delay = "systemd-logind delays no shutdown (InhibitDelayMaxSec=0)";
    let unlimited = "held; a shutdown is delayed, without a limit";
    let usual = scenario.logind.host().delay_usec;
    let drain = |from: &str, to: &str| answer("200 OK", &DRAIN.replace(from, to));
    for (usec, act, code, words) in [
        (usual, drain("", ""), 0, [held, agent, waits]),
        (usual, drain("8000", "46000"), 1, [held, "acknowledged within 46 s", slow]),
        (usual, drain(HOST, ""), 1, [held, agent, "the agent runs without --host-signals"]),
        (usual, drain(r#""lock":true,"delay_ms":45000"#, r#""lock":false"#), 1, [held, agent, unseen]),
        (usual, Act::Say(String::new()), 1, [held, "does not answer", "does not wait for load balancers"]),
        (0, drain("", ""), 1, [no_delay, agent, "InhibitDelayMaxSec=0"]),
        (u64::MAX, drain("", ""), 0, [unlimited, agent, "acknowledged, without a limit"]),
    ] {
        scenario.logind.host().delay_usec = usec;
        scenario.agent.now(act);
        let output = scenario.command().arg("status").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(code), 3), "{text}");
        text.lines().zip(words).for_each(|(line, words)| assert!(line.contains(words), "{words:?}: {text}"));
    }
}

#[test]
fn an_agent_that_does_not_read_the_files_is_named_before_the_day() {
    let mut scenario = Scenario::set();
    scenario.agent.now(answer("200 OK", &DRAIN.replace(HOST, "")));
    scenario.start();
    scenario.holds("45000");
    // Each signal is a reason to look again.
    let look_until = |what, met: &dyn Fn() -> bool| {
        scenario.until(what, || {
            scenario.logind.prepare(false, true);
            met()
        });
    };
    let warning = "a shutdown does not wait for load balancers: the agent runs without --host-signals";
    look_until("the warning", &|| scenario.log().contains(warning));
    scenario.agent.now(answer("200 OK", DRAIN));
    let asked = scenario.agent.asked();
    look_until("another look", &|| scenario.agent.asked() > asked + 1);
    assert_eq!(scenario.log().matches("WARN").count(), 1, "{}", scenario.log());
}
