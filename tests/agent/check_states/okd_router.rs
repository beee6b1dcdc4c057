//! `okd_router_1936` beside a `HAProxy` that answers as an OpenShift router does.

use crate::check_states::part::{Pace, Part, Says, State};
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::{Slowed, slow_down};
use nodegate_testbed::{Agent, until};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const SLOW: Duration = Duration::from_secs(2);

pub(crate) struct Router {
    pace: Pace,
    address: SocketAddr,
    configuration: PathBuf,
    running: Option<Haproxy>,
    slowed: Option<Slowed>,
    _dir: TempDir,
}

impl Part for Router {
    const CHECK: &'static str = "okd_router_1936";
    const PLAYED_WITH: &'static str = "a stand-in: HAProxy, of which the router is made. The router's own program, `openshift-router`, which has \
         `/healthz/ready`, comes in OpenShift's images alone, and Debian has none; its words are from its source";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), Says::Fails("ConnectionRefused")),
        State::new("starting: routes not yet synced, says 500", Self::begin, Says::Fails("HTTP 500")),
        State::new("healthy", |router| router.enable("synced"), Says::Passes),
        State::new("slow: takes 2 s", Self::slow, Says::Passes),
        State::new("hung: accepts, never answers", Self::hang, Says::Fails("Timeout after 5s")).within(10),
        State::new("goes on", |router| router.running().signal("CONT"), Says::Passes),
        State::new("shutting down: says 500", |router| router.disable("synced"), Says::Fails("HTTP 500")),
        State::new("lying: 200, and a body that says no", Self::lie, Says::Passes),
        State::new(
            "refusing: killed, or removed",
            |router| router.running = None,
            Says::Fails("ConnectionRefused"),
        ),
        State::new("started again, synced", Self::again, Says::Passes),
    ];

    fn start(pace: Pace) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = (Ipv4Addr::LOCALHOST, ports::free()).into();
        let configuration = dir.path().join("haproxy.cfg");
        fs::write(&configuration, configured(&dir.path().display().to_string(), address)).unwrap();
        Self { pace, address, configuration, running: None, slowed: None, _dir: dir }
    }

    fn agent(&self) -> Agent {
        let url = format!("url=http://{}/healthz/ready", self.address);
        Agent::alone(&[
            "--background-checks=okd_router_1936".to_owned(),
            format!("--check-settings=okd_router_1936:{url},{}", self.pace.settings()),
        ])
    }
}

/// Returns HAProxy's configuration. The stats socket switches the answers by disabling servers.
fn configured(dir: &str, address: SocketAddr) -> String {
    let says = |status: u16, body: &str, condition: &str| {
        format!(
            "  http-request return status {status} content-type text/plain string \"{body}\"{condition}\n"
        )
    };
    let answers = [
        says(500, "[-]has-synced failed: reason withheld", " if { nbsrv(synced) eq 0 }"),
        says(200, "[-]not ready", " if { nbsrv(honest) eq 0 }"),
        says(200, "ok", ""),
    ];
    format!(
        "global\n  stats socket {dir}/nodegate.sock level admin\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 10s\n  timeout server 10s\n\
         frontend router\n  bind {address}\n{}\
         backend synced\n  server switch 127.0.0.1:9\nbackend honest\n  server switch 127.0.0.1:9\n",
        answers.concat()
    )
}

impl Router {
    fn running(&self) -> &Haproxy {
        self.running.as_ref().unwrap()
    }

    fn again(&mut self) {
        self.running = Some(Haproxy::start(&self.configuration));
        until("the router to listen", || TcpStream::connect(self.address).ok());
    }

    fn begin(&mut self) {
        self.again();
        self.disable("synced");
    }

    fn disable(&self, switch: &str) {
        self.running().command(&format!("disable server {switch}/switch")).unwrap();
    }

    fn enable(&self, switch: &str) {
        self.running().command(&format!("enable server {switch}/switch")).unwrap();
    }

    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.running().pid(), self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        self.running().signal("STOP");
    }

    fn lie(&mut self) {
        self.enable("synced");
        self.disable("honest");
    }
}
