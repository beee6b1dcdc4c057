//! A real HAProxy, which shows whether `told` was correct.

use super::listening::Listening;
use super::{said, wait, waiting};
use nodegate_server::ProberSettings;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::until;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

const BACKENDS: usize = 10;

/// Starts HAProxy with backends that each check the same node, one of them with an agent-check, too.
fn start(directory: &Path, node: SocketAddr, agent_port: u16) -> Haproxy {
    let socket = directory.join("nodegate.sock");
    let mut text = format!(
        "global\n  node lb1\n  stats socket {} level admin\ndefaults\n  mode http\n  timeout connect 1s\n  \
         timeout client 1s\n  timeout server 1s\n",
        socket.display()
    );
    for n in 0..BACKENDS {
        let agent = match n {
            0 => format!("agent-check agent-port {agent_port} agent-inter 200ms agent-send \"lb1\\n\""),
            _ => String::new(),
        };
        write!(
            text,
            "backend app{n}\n  option httpchk GET /health?drain=503\n  http-check send-state\n  \
             server worker-1 {node} check inter 200ms fall 3 rise 2 {agent}\n",
        )
        .unwrap();
    }
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    Haproxy::start(&file)
}

/// Returns the states of HAProxy's servers.
fn states(haproxy: &Haproxy) -> BTreeSet<String> {
    let stat = haproxy.command("show stat -1 4 -1").unwrap();
    let rows = stat.lines().map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter(|row| row.get(1) == Some(&"worker-1")).map(|row| row[17].to_owned()).collect()
}

#[test]
fn wait_ends_only_after_every_haproxy_backend_drains() {
    let listening = Listening::start(ProberSettings::default());
    let directory = tempfile::tempdir().unwrap();
    let haproxy = start(directory.path(), listening.address, listening.agent_address.port());
    until("all backends to ask", || (listening.regular() == BACKENDS + 1).then_some(()));
    until("all servers to be up", || (states(&haproxy) == BTreeSet::from(["UP".to_owned()])).then_some(()));

    let waiting = waiting(listening.address, &["--probers", "11"]);
    listening.cordon(true);
    let (code, lines) = said(waiting.wait_with_output().unwrap());
    let now = states(&haproxy);
    assert_eq!(code, 0, "{lines:#?}");
    assert!(now.iter().all(|state| state.starts_with("DOWN") || state.starts_with("DRAIN")), "{now:?}");
    assert!(lines.last().unwrap().ends_with(": 11 balancers"), "{lines:#?}");
    for n in 0..BACKENDS {
        let who = format!("told     127.0.0.1 lb1 app{n}/worker-1 /health?drain=503: ");
        assert!(lines.iter().any(|line| line.starts_with(&who)), "{who} in {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("told     127.0.0.1 agent-check lb1: ")), "{lines:#?}");
    let status = listening.status();
    let probers = status["probers"].as_array().unwrap();
    assert!(probers.iter().any(|prober| prober["haproxy"]["sessions"] == 0), "{probers:#?}");

    listening.cordon(false);
    let (code, lines) = wait(listening.address, &["--for", "ready", "--probers", "11"]);
    assert_eq!((code, states(&haproxy)), (0, BTreeSet::from(["UP".to_owned()])), "{lines:#?}");
}
