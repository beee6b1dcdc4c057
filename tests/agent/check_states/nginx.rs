//! `http:<name>` and `tcp:<name>` beside Debian's nginx.

use crate::check_states::part::{Pace, Part, Says, State};
use nodegate_testbed::network::ports;
use nodegate_testbed::process::{Slowed, signal, slow_down};
use nodegate_testbed::programs::system;
use nodegate_testbed::{Agent, until};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The delay of a slow answer.
const SLOW: Duration = Duration::from_secs(2);

/// The nginx process, running or not. It serves the files of its directory and reads them again for each
/// request.
struct Nginx {
    pace: Pace,
    address: SocketAddr,
    dir: TempDir,
    running: Option<Child>,
    slowed: Option<Slowed>,
    waiting: Vec<TcpStream>,
}

impl Nginx {
    fn new(pace: Pace) -> Self {
        let (address, dir) = ((Ipv4Addr::LOCALHOST, ports::free()).into(), tempfile::tempdir().unwrap());
        let nginx = Self { pace, address, dir, running: None, slowed: None, waiting: Vec::new() };
        let at = nginx.dir.path().display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
            .join(" ");
        let answers = format!(
            "if (-f {at}/starting) {{ return 503; }} if (-f {at}/lying) {{ return 200 \"not healthy\"; }} \
             if (-f {at}/moved) {{ return 302 /login; }} return 200 ok;"
        );
        let text = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; events {{}}\n\
             http {{ access_log off; {paths} server {{ listen {address}; location / {{ {answers} }} }} }}\n"
        );
        fs::write(nginx.dir.path().join("nginx.conf"), text).unwrap();
        nginx
    }

    fn start(&mut self) {
        let mut command = system("nginx");
        command
            .arg("-e")
            .arg(self.dir.path().join("error.log"))
            .arg("-c")
            .arg(self.dir.path().join("nginx.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(command.spawn().expect("nginx is needed: hack/install-tools installs it"));
        until("nginx to listen", || TcpStream::connect(self.address).ok());
    }

    fn kill(&mut self) {
        self.slowed = None;
        self.waiting.clear();
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    fn set(&self, state: &str, on: bool) {
        let file = self.dir.path().join(state);
        if on { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
    }

    fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    fn slow(&mut self) {
        self.slowed = Some(slow_down(self.pid(), self.pace.time(SLOW)));
    }

    fn hang(&mut self) {
        self.slowed = None;
        signal(self.pid(), "STOP");
    }

    fn go_on(&mut self) {
        self.waiting.clear();
        signal(self.pid(), "CONT");
    }

    /// Opens connections until the accept queue of the kernel is full.
    fn fill_queue(&mut self) {
        while let Ok(stream) = TcpStream::connect_timeout(&self.address, Duration::from_millis(200)) {
            self.waiting.push(stream);
        }
    }

    fn agent(&self, kind: &str, url: &str) -> Agent {
        let settings = format!("--check-settings={kind}:web:{}", self.pace.settings());
        Agent::alone(&[
            format!("--{kind}-check=web={url}"),
            format!("--background-checks={kind}:web"),
            settings,
        ])
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) struct Http(Nginx);

impl Part for Http {
    const CHECK: &'static str = "http:web";
    const PLAYED_WITH: &'static str = "Debian's nginx; `--http-check web=http://127.0.0.1:8080/`";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), Says::Fails("ConnectionRefused")),
        State::new("starting: says 503", Self::begin, Says::Fails("HTTP 503")),
        State::new("healthy", |http| http.0.set("starting", false), Says::Passes),
        State::new("slow: takes 2 s", |http| http.0.slow(), Says::Passes),
        State::new(
            "hung: accepts, never answers",
            |http: &mut Self| http.0.hang(),
            Says::Fails("Timeout after 5s"),
        )
        .within(10),
        State::new("goes on", |http| http.0.go_on(), Says::Passes),
        State::new("elsewhere: redirects", |http| http.0.set("moved", true), Says::Fails("HTTP 302")),
        State::new("lying: 200, and a body that says no", Self::lie, Says::Passes),
        State::new("refusing: killed, or removed", |http| http.0.kill(), Says::Fails("ConnectionRefused")),
        State::new("started again", |http| http.0.start(), Says::Passes),
    ];

    fn start(pace: Pace) -> Self {
        Self(Nginx::new(pace))
    }

    fn agent(&self) -> Agent {
        self.0.agent("http", &format!("http://{}/", self.0.address))
    }
}

impl Http {
    fn begin(&mut self) {
        self.0.set("starting", true);
        self.0.start();
    }

    fn lie(&mut self) {
        self.0.set("moved", false);
        self.0.set("lying", true);
    }
}

pub(crate) struct Tcp(Nginx);

impl Part for Tcp {
    const CHECK: &'static str = "tcp:web";
    const PLAYED_WITH: &'static str = "Debian's nginx; `--tcp-check web=127.0.0.1:8080`";
    const STATES: &'static [State<Self>] = &[
        State::new("absent: nothing has ever listened", |_| (), Says::Fails("ConnectionRefused")),
        State::new("healthy", |tcp| tcp.0.start(), Says::Passes),
        State::new("slow: takes a connection after 2 s", |tcp| tcp.0.slow(), Says::Passes),
        State::new("hung: the kernel accepts, the server never answers", |tcp| tcp.0.hang(), Says::Passes),
        State::new(
            "hung, and its queue is full",
            |tcp: &mut Self| tcp.0.fill_queue(),
            Says::Fails("Timeout after 5s"),
        )
        .within(10),
        State::new("goes on", |tcp| tcp.0.go_on(), Says::Passes),
        State::new("refusing: killed, or removed", |tcp| tcp.0.kill(), Says::Fails("ConnectionRefused")),
        State::new("started again", |tcp| tcp.0.start(), Says::Passes),
    ];

    fn start(pace: Pace) -> Self {
        Self(Nginx::new(pace))
    }

    fn agent(&self) -> Agent {
        self.0.agent("tcp", &self.0.address.to_string())
    }
}
