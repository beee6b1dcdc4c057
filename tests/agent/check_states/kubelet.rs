//! `kubelet` beside a real kubelet, on a real containerd.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::host::containerd::Containerd;
use crate::host::kubernetes::{self, NodeProgram};
use nodegate_testbed::Agent;
use nodegate_testbed::network::namespaces::{Namespace, Stay};
use nodegate_testbed::process::{Slowed, slow_down};
use nodegate_testbed::stub::{Stub, answer};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const SLOW: Duration = Duration::from_secs(2);
const HEALTHZ: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);

const OTHER: &str =
    "another program of the test's own has the kubelet's port: its `/healthz` has nothing to say but 200";

pub(crate) struct Kubelet {
    pace: Pace,
    slowed: Option<Slowed>,
    other: Option<Stub>,
    program: NodeProgram,
    containerd: Containerd,
    _on_node: Stay,
    _node: Namespace,
}

impl Part for Kubelet {
    const CHECK: &'static str = "kubelet";
    const PLAYED_WITH: &'static str = "a real kubelet, 1.20.2, built from Debian 12's source package, without an API server, and Debian's containerd";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), Says::Fails("ConnectionRefused")),
        State::new("healthy, its runtime's network not ready", Self::begin, Says::Passes),
        State::new("slow: takes 2 s", Self::slow, Says::Passes),
        State::new("hung: accepts, never answers", Self::hang, Says::Fails("Timeout after 5s")).within(10),
        State::new("goes on", |kubelet| kubelet.program.signal("CONT"), Says::Passes),
        State::new("its container runtime hangs", |kubelet| kubelet.containerd.signal("STOP"), Says::Passes),
        State::new("its container runtime is dead", Self::kill_runtime, Says::Passes),
        State::new(
            "refusing: killed, or removed",
            |kubelet| kubelet.program.kill(),
            Says::Fails("ConnectionRefused"),
        ),
        State::new("started again", Self::again, Says::Passes),
        State::new("another program has its port, and says 204", Self::replace, Says::Fails("HTTP 204"))
            .note(OTHER),
        State::new("another program has its port, and says 200 and no", Self::lie, Says::Passes).note(OTHER),
    ];

    fn is_there() -> bool {
        kubernetes::program("kubelet").is_some()
    }

    fn start(pace: Pace) -> Self {
        let node = Namespace::new("kubelet");
        let on_node = node.stay();
        Self {
            pace,
            slowed: None,
            other: None,
            program: NodeProgram::new("kubelet"),
            containerd: Containerd::start(),
            _on_node: on_node,
            _node: node,
        }
    }

    fn agent(&self) -> Agent {
        Agent::alone(&[
            "--background-checks=kubelet".to_owned(),
            format!("--check-settings=kubelet:{}", self.pace.settings()),
        ])
    }
}

impl Kubelet {
    /// Starts the kubelet without control groups and pods, so that it does not change the machine.
    fn begin(&mut self) {
        let files = self.program.files().display();
        let args = [
            "--container-runtime=remote".to_owned(),
            format!("--container-runtime-endpoint=unix://{}", self.containerd.socket().display()),
            format!("--root-dir={files}/root"),
            format!("--cert-dir={files}/certificates"),
            "--cgroups-per-qos=false".to_owned(),
            "--enforce-node-allocatable=".to_owned(),
            "--fail-swap-on=false".to_owned(),
            "--hostname-override=n1".to_owned(),
        ];
        self.program.start(&args, HEALTHZ);
    }

    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.program.pid(), self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        self.program.signal("STOP");
    }

    fn kill_runtime(&mut self) {
        self.containerd.kill();
    }

    fn again(&mut self) {
        self.containerd.restart();
        self.begin();
    }

    fn replace(&mut self) {
        self.program.kill();
        self.other = Some(Stub::start_at(HEALTHZ, answer("204 No Content", "")));
    }

    fn lie(&mut self) {
        self.other.as_ref().unwrap().now(answer("200 OK", "[-]syncloop failed: reason withheld"));
    }
}
