//! `nodegate wait`: its output and its exit codes, with and without probers. The core's own tests cover the
//! same rules for longer times, under simulated time.

mod handover;
mod hooks;
mod listening;
mod pods;

use listening::{Listening, SERVICE};
use nodegate_testbed::agent::run;
use nodegate_testbed::{Cluster, NODE, http, programs, until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Runs `nodegate wait` with these arguments to its end.
fn wait(address: SocketAddr, args: &[&str]) -> (i32, Vec<String>) {
    said(run(&[&["wait", "--addr", &address.to_string()], args].concat(), &[]))
}

fn said(output: Output) -> (i32, Vec<String>) {
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(['\u{1b}', '\r']), "no terminal, no control characters: {text:?}");
    (output.status.code().unwrap(), text.lines().map(str::to_owned).collect())
}

/// Returns the output of `nodegate status`.
fn status(address: SocketAddr) -> String {
    let output = run(&["status", "--addr", &address.to_string()], &[]);
    String::from_utf8(output.stdout).unwrap()
}

/// Starts `nodegate wait` with these arguments.
fn waiting(address: SocketAddr, args: &[&str]) -> Child {
    let mut command = Command::new(programs::agent());
    command.args(["wait", "--addr", &address.to_string()]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Probes as a balancer does, from an address of its own, until it is dropped.
struct Balancer(Arc<()>);

impl Balancer {
    fn start(from: u8, address: SocketAddr, path: &'static str) -> Self {
        let balancer = Self(Arc::new(()));
        let lives = Arc::downgrade(&balancer.0);
        std::thread::spawn(move || {
            while lives.strong_count() > 0 {
                // An agent that ends may refuse it.
                let _ = ask(Ipv4Addr::new(127, 0, 9, from), address, path);
                std::thread::sleep(EVERY);
            }
        });
        balancer
    }
}

/// Sends one probe from this address.
fn ask(from: Ipv4Addr, address: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stream = http::connect_from(from, address, http::TIMEOUT)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

const EVERY: Duration = Duration::from_millis(100);

/// Starts an agent with this number of regular probers.
fn asked_by(count: u8) -> (Listening, Vec<Balancer>) {
    let listening = Listening::start();
    let start = |n| Balancer::start(n, listening.address, "/health?drain=503");
    let balancers = (1..=count).map(start).collect();
    until("all to be regular", || (listening.regular() == usize::from(count)).then_some(()));
    (listening, balancers)
}

#[test]
fn wait_ends_when_all_probers_have_acknowledged_and_when_the_node_is_ready_again() {
    let (listening, _balancers) = asked_by(2);
    let waiting = waiting(listening.address, &[]);
    listening.cordon(true);
    let (code, lines) = said(waiting.wait_with_output().unwrap());
    assert_eq!(code, 0, "{lines:#?}");
    for balancer in ["127.0.9.1", "127.0.9.2"] {
        let acknowledged = format!("acknowledged  {balancer} /health?drain=503: ");
        assert!(lines.iter().any(|line| line.starts_with(&acknowledged)), "{lines:#?}");
    }
    let last = lines.last().unwrap();
    assert!(last.starts_with("acknowledged after ") && last.ends_with(": 2 balancers"), "{last}");
    let shown = status(listening.address);
    for word in [
        "drain  acknowledged by all 2 probers",
        "PROBER",
        "127.0.9.1  /health?drain=503",
        "503 Draining x",
        ", acknowledged",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert_eq!(listening.status()["drain"]["acknowledged"], true);
    listening.cordon(false);
    let (code, lines) = wait(listening.address, &["--for", "ready"]);
    assert_eq!((code, lines.last().unwrap().starts_with("ready after ")), (0, true), "{lines:#?}");
}

/// Shows that `--node` and `--node-uid` identify the agent. The networks of two clusters may overlap, so an
/// address is not enough.
#[test]
fn wait_accepts_only_the_agent_of_the_named_node() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    let (at, uid) = (agent.address(), agent.get("/status.json").json()["uid"].as_str().unwrap().to_owned());
    for args in [&["--node", "n2"][..], &["--node", NODE, "--node-uid", "u-of-another-cluster"]] {
        let (code, lines) = wait(at, args);
        let stranger = format!(
            "not known: another cluster's agent answers at {at}: it speaks for Node n1 (uid {uid}), not "
        );
        assert!(code == 3 && lines.len() == 1 && lines[0].starts_with(&stranger), "{code} {lines:#?}");
    }
    let (code, lines) = wait(at, &["--node", NODE, "--node-uid", &uid, "--timeout=0s"]);
    assert!(code == 1 && lines.iter().all(|line| !line.contains("another cluster")), "{code} {lines:#?}");
}

#[test]
fn wait_follows_one_service() {
    let listening = Listening::start();
    let _balancer = Balancer::start(1, listening.address, "/services/shop/web");
    until("it to be regular", || (listening.regular() == 1).then_some(()));
    let waiting = waiting(listening.address, &["--service", SERVICE]);
    listening.endpoints(0);
    let (code, lines) = said(waiting.wait_with_output().unwrap());
    assert!(code == 0 && lines.last().unwrap().ends_with(": the one balancer that probes"), "{lines:#?}");
    let acknowledged = "shop/web: no ready endpoint here; its balancers know";
    let shown = status(listening.address);
    assert!(shown.contains(acknowledged), "{shown}");
    let get = |path| http::get(listening.address, path).unwrap().body;
    assert!(get("/").contains(acknowledged));
    assert!(get("/metrics").contains("nodegate_service_acknowledged{service=\"shop/web\"} 1"));
    let (code, lines) = wait(listening.address, &["--service", "shop/other"]);
    assert!(code == 3 && lines[0].ends_with("name it with --watch-service"), "{lines:#?}");
}

#[test]
fn wrong_arguments_of_wait_are_unknown() {
    for (args, words) in [
        (["--for", "gone"], "--for \"gone\": takes acknowledged, released or ready"),
        (["--fall", "3"], "unexpected argument '--fall'"),
        (["--addr", "a b"], "--addr \"a b\": takes HOST"),
        (["--node", "N_1"], "--node \"N_1\": takes the name of a Node"),
        (["--node-uid", "u"], "--node-uid needs --node"),
        (["--service=a/b", "--for=released"], "--for takes acknowledged or ready with --service"),
        (["--service", "a"], "--service \"a\": takes namespace/name"),
    ] {
        let output = run(&[&["wait"], &args[..]].concat(), &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(error.contains(words), "{error}");
    }
}
