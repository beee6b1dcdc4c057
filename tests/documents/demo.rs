//! `make demo`, as a person uses it. The tour needs kubectl.

use nodegate_testbed::poll::until;
use nodegate_testbed::ports::free_ports;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// The example, built by `cargo test` beside the agent. Each test has ports of its own, as has a real demo.
fn demo(base_port: u16) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_nodegate")).with_file_name("examples").join("demo");
    assert!(built.is_file(), "{} is missing: cargo build --example demo", built.display());
    let mut command = Command::new(built);
    command.args(["--base-port", &base_port.to_string()]).stdin(Stdio::null());
    command
}

/// A demo that has shown all three nodes ready.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    dir: PathBuf,
    base_port: u16,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let base_port = free_ports();
        let mut child = demo(base_port).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut dir, mut ready) = (None, 0);
        while ready < 3 {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the demo ended: {:?}", child.wait());
            ready += usize::from(line.contains("no answer -> Ready"));
            if let Some(kubeconfig) = line.trim().strip_prefix("export KUBECONFIG=") {
                dir = Path::new(kubeconfig).parent().map(Path::to_owned);
            }
        }
        Self { child, output, dir: dir.expect("the kubeconfig's path is printed"), base_port }
    }

    /// The agents that it started, known by their credentials.
    fn agents(&self) -> Vec<u32> {
        let needle = format!("KUBECONFIG={}/agent.kubeconfig\0", self.dir.display());
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let ours = |pid: &u32| {
            // A process that is gone, or another user's, is none of ours.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(needle.len()).any(|window| window == needle.as_bytes())
        };
        pids.filter(ours).collect()
    }

    fn kubectl(&self, args: &[&str]) {
        let mut command = Command::new("kubectl");
        command.args(args).env("KUBECONFIG", self.dir.join("kubeconfig"));
        assert!(command.env("KUBECACHEDIR", self.dir.join("cache")).status().unwrap().success());
    }

    /// Reads lines until one contains this.
    fn wait_for(&mut self, needle: &str) {
        let mut line = String::new();
        while !line.contains(needle) {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the demo ended: {:?}", self.child.wait());
        }
    }

    /// Waits for its end: how it ended, and what it still said.
    fn end(&mut self) -> (ExitStatus, String) {
        let status = until("the demo to end", || self.child.try_wait().unwrap());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (status, rest)
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.agents(), [] as [u32; 0]);
        assert!(!self.dir.exists(), "{} is still there", self.dir.display());
        for port in [0, 1, 2, 10, 11, 12, 20, 21, 22, 30].map(|n| self.base_port + n) {
            TcpListener::bind(("127.0.0.1", port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}

#[test]
fn the_tour_shows_what_it_should() {
    let output = demo(free_ports()).arg("--tour").output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    for seen in [
        "✓ all three Ready, /health 200, after",
        "✓ worker-1 Draining (Unschedulable), /health 503, after",
        "✓ worker-1 Ready, /health 200, after",
        "✓ worker-2 NotReady (KubeletNotReady), /health 503, after",
        "✓ worker-2 Ready, /health 200, after",
        "✓ worker-1 Draining all the same, /health 503, after",
        "✓ worker-1's agent replaced its watch",
        "✓ all three stale, failing open, /health 200, after",
        "✓ worker-2 and worker-3 fresh again, /health 200, after",
        "✓ worker-1 Draining: the cordon was not missed, /health 503, after",
        "5 of 5 steps showed what they should",
    ] {
        assert!(text.contains(seen), "no {seen:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe:\n{text}");
}

#[test]
fn ctrl_c_and_sigterm_leave_nothing_behind() {
    for name in ["INT", "TERM", "HUP"] {
        let mut demo = Running::start(&[]);
        assert_eq!(demo.agents().len(), 3);
        signal(name, demo.child.id());
        let (status, rest) = demo.end();
        assert_eq!(status.code(), Some(0), "SIG{name}: {rest}");
        demo.assert_nothing_left();
    }
}

#[test]
fn an_agent_that_dies_ends_the_demo() {
    let mut demo = Running::start(&[]);
    signal("KILL", demo.agents()[0]);
    let (status, rest) = demo.end();
    assert_eq!(status.code(), Some(1), "{rest}");
    assert!(
        rest.contains("died: signal: 9 (SIGKILL); the end of its log:") && rest.contains("listening"),
        "{rest}"
    );
    demo.assert_nothing_left();
}

#[test]
fn a_cordon_moves_the_traffic_of_a_real_haproxy_without_a_failure() {
    let mut demo = Running::start(&["--haproxy"]);
    demo.kubectl(&["cordon", "worker-1"]);
    demo.wait_for("worker-1   0/s DRAIN ");
    demo.kubectl(&["uncordon", "worker-1"]);
    demo.wait_for("worker-1  Draining  -> Ready");
    signal("INT", demo.child.id());
    let (status, rest) = demo.end();
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(rest.contains("requests through HAProxy, 0 failed"), "{rest}");
    demo.assert_nothing_left();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let base_port = free_ports();
    let taken = base_port + 10;
    let _other = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let output = demo(base_port).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let expected = format!("demo: port {taken} for the agent of worker-2 is not free");
    assert!(errors.starts_with(&expected), "{errors}");
}

#[test]
fn a_wrong_argument_is_one_line() {
    let output = demo(free_ports()).arg("--bogus").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("--bogus") && errors.lines().count() == 1, "{errors}");
}
