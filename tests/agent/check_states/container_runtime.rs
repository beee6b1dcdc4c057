//! `container_runtime` beside Debian's containerd.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::host::containerd::Containerd;
use nodegate_testbed::Agent;
use nodegate_testbed::process::{Slowed, slow_down};
use std::fs;
use std::time::Duration;

const SLOW: Duration = Duration::from_secs(2);

const NOT_READY: &str =
    "NetworkReady: NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized";

const PLAYED_WITH: &str = "Debian's containerd, 1.6";

pub(crate) struct Runtime {
    pace: Pace,
    slowed: Option<Slowed>,
    containerd: Containerd,
}

impl Part for Runtime {
    const CHECK: &'static str = "container_runtime";
    const PLAYED_WITH: &'static str = PLAYED_WITH;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: there is no socket", |_| (), Says::Fails("NoSocket: …/containerd.sock")),
        State::new("starting: no CNI configuration yet", Self::begin, Says::Fails(NOT_READY)),
        State::new("healthy", |runtime| runtime.containerd.configure_cni(), Says::Passes),
        State::new("slow: takes 2 s", Self::slow, Says::Passes),
        State::new("hung: accepts, never answers", Self::hang, Says::Fails("Timeout after 5s")).within(10),
        State::new("goes on", |runtime| runtime.containerd.signal("CONT"), Says::Passes),
        State::new("its CNI configuration is gone", Self::lose_network, Says::Fails(NOT_READY)),
        State::new("it is back", |runtime| runtime.containerd.configure_cni(), Says::Passes),
        State::new(
            "refusing: killed, its socket is left",
            Self::kill,
            Says::Fails("ConnectionRefused: …/containerd.sock"),
        ),
        State::new("started again", |runtime| runtime.containerd.restart(), Says::Passes),
        State::new("removed, with its socket", Self::remove, Says::Fails("NoSocket: …/containerd.sock")),
    ];

    fn start(pace: Pace) -> Self {
        let mut containerd = Containerd::start();
        containerd.kill();
        fs::remove_file(containerd.socket()).unwrap();
        Self { pace, slowed: None, containerd }
    }

    fn agent(&self) -> Agent {
        self.containerd.agent_with(self.pace.settings())
    }
}

impl Runtime {
    fn begin(&mut self) {
        self.containerd.restart();
    }

    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.containerd.pid(), self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        self.containerd.signal("STOP");
    }

    fn lose_network(&mut self) {
        self.containerd.unconfigure_cni();
    }

    fn kill(&mut self) {
        self.containerd.kill();
    }

    fn remove(&mut self) {
        self.containerd.kill();
        fs::remove_file(self.containerd.socket()).unwrap();
    }
}

/// A containerd without CRI, as Docker installs it by default.
pub(crate) struct WithoutCri(Pace, Containerd);

impl Part for WithoutCri {
    const CHECK: &'static str = "container_runtime";
    const TITLE: &'static str = "container_runtime, beside a containerd without CRI";
    const PLAYED_WITH: &'static str = PLAYED_WITH;
    const STATES: &'static [State<Self>] = &[State::new(
        "lying: speaks gRPC, and is no runtime",
        |_| (),
        Says::Fails("NotCRIv1: …/containerd.sock"),
    )];

    fn start(pace: Pace) -> Self {
        Self(pace, Containerd::start_without_cri())
    }

    fn agent(&self) -> Agent {
        self.1.agent_with(self.0.settings())
    }
}
