//! `kube_proxy` beside a real kube-proxy, and beside a stub with the answers of newer releases.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::host::kubernetes::{self, NodeProgram};
use crate::local_checks::{ELIGIBLE, NOT_STARTED, agent_on_node_up_for};
use nodegate_testbed::http::get;
use nodegate_testbed::network::namespaces::{Namespace, Stay};
use nodegate_testbed::process::{Slowed, slow_down};
use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::waiting::until;
use nodegate_testbed::{Agent, Cluster};
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const SLOW: Duration = Duration::from_secs(2);
const HEALTHZ: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);

const REAL: &str =
    "a real kube-proxy, 1.20.2, built from Debian 12's source package, on a simulated API server";

const OTHER: &str = "another program of the test's own has kube-proxy's port";

const NEWER: &str = "the answer of a newer release, from its source (`pkg/proxy/healthcheck`), by a program of the test's \
                     own: Debian has no newer kube-proxy, neither built nor in source";

/// A kube-proxy with its surroundings.
struct Stage {
    pace: Pace,
    slowed: Option<Slowed>,
    newer: Option<Stub>,
    program: NodeProgram,
    cluster: Cluster,
    services: u32,
    _on_node: Stay,
    _node: Namespace,
}

impl Stage {
    fn new(pace: Pace) -> Self {
        let node = Namespace::new("kube-proxy");
        let on_node = node.stay();
        let program = NodeProgram::new("kube-proxy");
        let cluster = Cluster::with(|builder| builder.kubelets(true));
        Self {
            pace,
            slowed: None,
            newer: None,
            program,
            cluster,
            services: 0,
            _on_node: on_node,
            _node: node,
        }
    }

    fn begin(&mut self) {
        let kubeconfig = self.program.files().join("kubeconfig");
        self.cluster.sim.write_kubeconfig(&kubeconfig).unwrap();
        self.mend_rules();
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--hostname-override=n1".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--healthz-bind-address={HEALTHZ}"),
            "--proxy-mode=iptables".to_owned(),
            // In this release the feature would be a beta that the simulated API server does not serve.
            "--feature-gates=EndpointSliceProxying=false".to_owned(),
            "--conntrack-max-per-core=0".to_owned(),
            "--conntrack-tcp-timeout-established=0s".to_owned(),
            "--conntrack-tcp-timeout-close-wait=0s".to_owned(),
        ];
        if self.pace.is_quick() {
            args.push("--iptables-sync-period=1s".to_owned());
        }
        self.program.start(&args, HEALTHZ);
    }

    fn kill(&mut self) {
        self.newer = None;
        self.program.kill();
    }

    /// Adds a Service, so that kube-proxy has rules to write.
    fn add_service(&mut self) {
        self.services += 1;
        let (number, name) = (self.services, format!("s{}", self.services));
        let spec = json!({
            "clusterIP": format!("10.96.0.{number}"), "clusterIPs": [format!("10.96.0.{number}")], "type": "ClusterIP",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        });
        let metadata = json!({"name": name, "namespace": "default"});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        self.cluster.sim.apply(service).unwrap();
    }

    /// Makes `iptables-restore` fail, as it does while another program holds its lock.
    fn break_rules(&mut self) {
        let program = self.program.files().join("iptables-restore");
        fs::write(&program, "#!/bin/sh\ncat >/dev/null\necho 'Another app is currently holding the xtables lock' >&2\nexit 4\n")
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        self.add_service();
    }

    fn mend_rules(&mut self) {
        let _ = fs::remove_file(self.program.files().join("iptables-restore"));
    }

    fn newer_says(&mut self, status: &str, body: &str) {
        let answer = answer(status, body);
        if let Some(newer) = &self.newer {
            newer.now(answer);
            return;
        }
        // A process that kube-proxy was just starting may outlive it for a moment and hold its port.
        until("kube-proxy's port to be free", || TcpListener::bind(HEALTHZ).ok());
        self.newer = Some(Stub::start_at(HEALTHZ, answer));
    }

    fn agent(&self, up: Duration, settings: &str) -> Agent {
        let check = format!("--check-settings=kube_proxy:{}{settings}", self.pace.settings());
        agent_on_node_up_for(up, &["--background-checks=kube_proxy".to_owned(), check])
    }
}

const REFUSED: Says = Says::Fails("ConnectionRefused");
const UNAVAILABLE: &str = "503 Service Unavailable";

/// A kube-proxy that the agent discovers by itself, on a node that has been up for an hour.
pub(crate) struct KubeProxy(Stage);

impl Part for KubeProxy {
    const CHECK: &'static str = "kube_proxy";
    const PLAYED_WITH: &'static str = REAL;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), Says::Passes),
        State::new("starting: no API server answers, no rules are written", Self::starts, Says::Passes),
        State::new("healthy", |proxy| proxy.0.cluster.sim.heal(), Says::Passes),
        State::new("slow: takes 2 s", Self::slow, Says::Passes),
        State::new("hung: accepts, never answers", Self::hang, Says::Fails("Timeout after 5s")).within(10),
        State::new("goes on", |proxy| proxy.0.program.signal("CONT"), Says::Passes),
        // This release answers then as Cilium does without the API server, of which the agent hears nothing.
        State::new(
            "rules can't be written: says 503 with two times alone, and no API server is heard",
            Self::refuse,
            Says::Passes,
        ),
        State::new("rules can be written again", Self::mend, Says::Passes),
        State::new("refusing: killed, or removed", |proxy: &mut Self| proxy.0.kill(), REFUSED)
            .newcomer(Says::Passes),
        State::new("started again", |proxy| proxy.0.begin(), Says::Passes),
        State::new(
            "starting: no rules are written yet",
            Self::starts_newer,
            Says::Fails("NotSynced: no rules written yet"),
        )
        .note(NEWER),
        State::new("IPv6 rules can't be written", Self::stuck, Says::Fails("NotSynced: IPv6 for 73s"))
            .note(NEWER),
        State::new("the Node is being deleted", Self::not_eligible, Says::Drains("NodeNotEligible"))
            .note(NEWER),
        State::new("lying: 200, and says that it is not healthy", Self::lie, Says::Fails("NotSynced"))
            .note(NEWER),
        State::new(
            "lying: 200, and has not looked for 300 s",
            Self::stale,
            Says::Fails("Stale: last updated 300s ago"),
        )
        .note(NEWER),
        State::new(
            "another program has its port, and says 200",
            Self::replaced,
            Says::Fails("MalformedJSON"),
        )
        .note(OTHER),
    ];

    fn is_there() -> bool {
        kubernetes::program("kube-proxy").is_some()
    }

    fn start(pace: Pace) -> Self {
        Self(Stage::new(pace))
    }

    fn agent(&self) -> Agent {
        self.0.agent(Duration::from_hours(1), "")
    }
}

impl KubeProxy {
    fn starts(&mut self) {
        self.0.cluster.sim.freeze();
        self.0.begin();
    }

    fn slow(&mut self) {
        self.0.slowed = Some(slow_down(self.0.program.pid(), self.0.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.0.slowed = None;
        self.0.program.signal("STOP");
    }

    fn refuse(&mut self) {
        self.0.break_rules();
        until("the refusal", || get(HEALTHZ, "/healthz").ok().filter(|reply| reply.status == 503));
    }

    fn mend(&mut self) {
        self.0.mend_rules();
    }

    fn starts_newer(&mut self) {
        self.0.kill();
        let (times, _) = ELIGIBLE.split_once(r#","status""#).unwrap();
        self.0.newer_says("200 OK", &format!("{times}}}"));
    }

    fn stuck(&mut self) {
        let ipv6 = r#""IPv6":{"lastUpdated":"2026-01-02T03:02:52Z","healthy":false}}"#;
        let body = ELIGIBLE.replace(r#""healthy":true,"status""#, r#""healthy":false,"status""#);
        let body = body.replace("}}}", &format!("}},{ipv6}}}"));
        self.0.newer_says(UNAVAILABLE, &body);
    }

    fn not_eligible(&mut self) {
        self.0
            .newer_says(UNAVAILABLE, &ELIGIBLE.replace(r#""nodeEligible":true"#, r#""nodeEligible":false"#));
    }

    fn lie(&mut self) {
        self.0.newer_says(
            "200 OK",
            &ELIGIBLE.replace(r#""healthy":true,"status""#, r#""healthy":false,"status""#),
        );
    }

    fn stale(&mut self) {
        let then = r#"{"lastUpdated":"2026-01-02T02:59:05Z""#;
        self.0.newer_says(
            "200 OK",
            &ELIGIBLE
                .replace(r#"{"lastUpdated":"2026-01-02T03:04:05Z","current"#, &format!("{then},\"current")),
        );
    }

    fn replaced(&mut self) {
        self.0.newer_says("200 OK", "ok");
    }
}

/// A kube-proxy that the operator declares with `deployed=yes`.
pub(crate) struct Deployed(Stage);

impl Part for Deployed {
    const CHECK: &'static str = "kube_proxy";
    const TITLE: &'static str = "kube_proxy:deployed=yes";
    const PLAYED_WITH: &'static str = REAL;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), REFUSED),
        State::new("healthy", |proxy| proxy.0.begin(), Says::Passes),
        State::new("refusing: killed, or removed", |proxy: &mut Self| proxy.0.kill(), REFUSED),
    ];

    fn is_there() -> bool {
        KubeProxy::is_there()
    }

    fn start(pace: Pace) -> Self {
        Self(Stage::new(pace))
    }

    fn agent(&self) -> Agent {
        self.0.agent(Duration::from_hours(1), ",deployed=yes")
    }
}

/// A kube-proxy on a node that boots.
pub(crate) struct Booting(Stage);

impl Part for Booting {
    const CHECK: &'static str = "kube_proxy";
    const TITLE: &'static str = "kube_proxy, on a node that booted less than 5 minutes ago";
    const PLAYED_WITH: &'static str = REAL;
    const STATES: &'static [State<Self>] = &[
        State::new("absent: it may still come", |_| (), Says::Fails(NOT_STARTED)),
        State::new("healthy", |proxy| proxy.0.begin(), Says::Passes),
        State::new("refusing: killed, or removed", |proxy: &mut Self| proxy.0.kill(), REFUSED)
            .newcomer(Says::Fails(NOT_STARTED)),
    ];

    fn is_there() -> bool {
        KubeProxy::is_there()
    }

    fn start(pace: Pace) -> Self {
        Self(Stage::new(pace))
    }

    fn agent(&self) -> Agent {
        self.0.agent(Duration::from_secs(20), "")
    }
}
