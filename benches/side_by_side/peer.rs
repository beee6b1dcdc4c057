//! The compared servers. Each is a process on the servers' core.

use crate::cluster::{Cluster, NODE, kubeconfig_of_api_get};
use crate::load::{Connections, Prober};
use crate::pinning;
use nodegate_testbed::network::ports;
use std::env;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// nodegate's answer for a ready node. The other servers answer with a constant of the same size.
pub(crate) const BODY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Nodegate,
    /// nodegate without any known prober, so it notes no acknowledgements.
    Unnoted,
    /// Another build of nodegate: `--before`.
    Before,
    Floor,
    KeptFloor,
    Nginx,
    /// nginx with a socket of its own for the one worker, which accepts all waiting connections at once.
    NginxTuned,
    Haproxy,
    /// A newer HAProxy: `--haproxy`.
    NewerHaproxy,
    Caddy,
    ApiGet,
}

/// The programs that the command line can name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs<'a> {
    pub(crate) nodegate: &'a Path,
    pub(crate) before: Option<&'a Path>,
    pub(crate) newer_haproxy: Option<&'a Path>,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Nodegate,
        Self::Unnoted,
        Self::Before,
        Self::Floor,
        Self::KeptFloor,
        Self::Nginx,
        Self::NginxTuned,
        Self::Haproxy,
        Self::NewerHaproxy,
        Self::Caddy,
        Self::ApiGet,
    ];

    /// Returns the kinds whose programs are available.
    pub(crate) fn of(programs: Programs<'_>) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |kind| match kind {
            Self::Before => programs.before.is_some(),
            Self::NewerHaproxy => programs.newer_haproxy.is_some(),
            _ => true,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nodegate => "nodegate",
            Self::Unnoted => "nodegate, nobody noted",
            Self::Before => "nodegate before",
            Self::Floor => "bare loop",
            Self::KeptFloor => "bare epoll loop",
            Self::Nginx => "nginx",
            Self::NginxTuned => "nginx, reuseport",
            Self::Haproxy => "HAProxy",
            Self::NewerHaproxy => "newer HAProxy",
            Self::Caddy => "Caddy",
            Self::ApiGet => "API GET",
        }
    }

    pub(crate) fn serves(self, connections: Connections) -> bool {
        match self {
            Self::Floor => connections.are_new(),
            Self::KeptFloor => connections == Connections::Kept,
            _ => true,
        }
    }
}

/// A running server. Drop kills it.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Peer {
    /// Starts a server and waits until it answers 200.
    pub(crate) fn start(kind: Kind, cluster: &Cluster, programs: Programs<'_>) -> io::Result<Self> {
        Self::start_in(kind, cluster, programs, |command| command)
    }

    /// Starts a server under callgrind, which writes its counts to files whose names begin with `out`.
    pub(crate) fn start_counted(
        kind: Kind,
        cluster: &Cluster,
        programs: Programs<'_>,
        out: &Path,
    ) -> io::Result<Self> {
        Self::start_in(kind, cluster, programs, |command| {
            let mut counted = pinning::on_server_core(Path::new("valgrind"));
            counted.args(["-q", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", out.display()));
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            // The command that chooses the core is left out: `counted` already has it.
            counted.args(words.skip(pinning::words_in_front()));
            for (name, value) in command.get_envs() {
                if let Some(value) = value {
                    counted.env(name, value);
                }
            }
            counted
        })
    }

    fn start_in(
        kind: Kind,
        cluster: &Cluster,
        programs: Programs<'_>,
        wrap: impl FnOnce(Command) -> Command,
    ) -> io::Result<Self> {
        let port = ports::free();
        let dir = cluster.dir.path();
        let command = match kind {
            Kind::Nodegate => agent(programs.nodegate, cluster, port),
            Kind::Unnoted => {
                let mut command = agent(programs.nodegate, cluster, port);
                command.env("NODEGATE_BALANCERS", NOBODY);
                command
            }
            Kind::Before => agent(programs.before.unwrap_or(programs.nodegate), cluster, port),
            Kind::Floor => own("floor", port)?,
            Kind::KeptFloor => own("kept-floor", port)?,
            Kind::ApiGet => {
                let mut command = own("api-get", port)?;
                command.env("KUBECONFIG", kubeconfig_of_api_get(cluster));
                command
            }
            Kind::Nginx => nginx(&dir.join("nginx"), port, "", "")?,
            Kind::NginxTuned => nginx(&dir.join("nginx-tuned"), port, " reuseport", " multi_accept on;")?,
            Kind::Haproxy => haproxy(dir, Path::new("haproxy"), port)?,
            Kind::NewerHaproxy => haproxy(dir, programs.newer_haproxy.unwrap_or(Path::new("haproxy")), port)?,
            Kind::Caddy => caddy(dir, port)?,
        };
        let command = wrap(command);
        let log = cluster.dir.path().join(format!("{kind:?}.log"));
        let peer = Self::launch(kind, command, port, File::create(&log)?)?;
        peer.wait_until_ready(&log)?;
        Ok(peer)
    }

    fn launch(kind: Kind, mut command: Command, port: u16, log: File) -> io::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| {
            io::Error::other(format!("can't start {}: {error}: {command:?}", kind.name()))
        })?;
        Ok(Self { kind, address: (Ipv4Addr::LOCALHOST, port).into(), child })
    }

    /// Starts an agent. Returns it with the time from its start to its first answer that is not stale.
    pub(crate) fn first_answer(cluster: &Cluster, nodegate: &Path) -> io::Result<(Self, Duration)> {
        let port = ports::free();
        let started = Instant::now();
        let peer = Self::launch(
            Kind::Nodegate,
            agent(nodegate, cluster, port),
            port,
            File::create(cluster.dir.path().join("first-answer.log"))?,
        )?;
        let mut prober = Prober::new(peer.address, Connections::New);
        while started.elapsed() < Duration::from_secs(30) {
            if matches!(prober.probe(), Ok(200)) && prober.answer().ends_with(BODY.as_bytes()) {
                return Ok((peer, started.elapsed()));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Err(io::Error::other("no truthful answer from a fresh agent"))
    }

    fn wait_until_ready(&self, log: &Path) -> io::Result<()> {
        let connections =
            if self.kind.serves(Connections::New) { Connections::New } else { Connections::Kept };
        for _ in 0..1000 {
            if matches!(Prober::new(self.address, connections).probe(), Ok(200)) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(log)?;
        Err(io::Error::other(format!("{} does not answer 200: {log}", self.kind.name())))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The server may have ended by itself. Errors have no consequence here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address from the documentation range of RFC 5737, which no client has.
const NOBODY: &str = "192.0.2.1/32";

fn agent(nodegate: &Path, cluster: &Cluster, port: u16) -> Command {
    let mut command = pinning::on_server_core(nodegate);
    command
        .env("NODE_NAME", NODE)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("LISTEN_PORT", port.to_string())
        .env("NODEGATE_AGENT_CHECK_PORT", "0")
        .env("NODEGATE_LISTEN_ADDRESS", "127.0.0.1");
    command
}

/// Returns a command that runs this program in another role.
fn own(role: &str, port: u16) -> io::Result<Command> {
    let mut command = pinning::on_server_core(&env::current_exe()?);
    command.arg(role).arg(port.to_string());
    Ok(command)
}

/// Returns nginx with Debian's configuration, but with one process instead of a master and its workers.
/// nodegate accepts on one thread, too.
fn nginx(dir: &Path, port: u16, listen: &str, events: &str) -> io::Result<Command> {
    std::fs::create_dir_all(dir)?;
    let config = dir.join("nginx.conf");
    let at = dir.display();
    std::fs::write(
        &config,
        format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 4096;{events} }}\n\
             http {{ access_log off; default_type application/json; keepalive_requests 1000000000;\n\
             client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at}; uwsgi_temp_path {at};\n\
             scgi_temp_path {at};\n\
             server {{ listen 127.0.0.1:{port}{listen}; location / {{ return 200 '{BODY}'; }} }} }}\n"
        ),
    )?;
    let mut command = pinning::on_server_core(Path::new("nginx"));
    command.arg("-c").arg(config).arg("-p").arg(dir);
    Ok(command)
}

fn haproxy(dir: &Path, program: &Path, port: u16) -> io::Result<Command> {
    let config = dir.join(format!("haproxy-{port}.cfg"));
    let body = BODY.replace('"', "\\\"");
    std::fs::write(
        &config,
        format!(
            "global\n  nbthread 1\n  maxconn 4096\n\
             defaults\n  mode http\n  timeout client 1m\n  timeout connect 1s\n  timeout server 1s\n\
             frontend health\n  bind 127.0.0.1:{port}\n  \
             http-request return status 200 content-type application/json string \"{body}\"\n"
        ),
    )?;
    let mut command = pinning::on_server_core(program);
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

/// Returns Caddy with one thread of Go, since the other servers have one thread.
fn caddy(dir: &Path, port: u16) -> io::Result<Command> {
    let config = dir.join("Caddyfile");
    std::fs::write(
        &config,
        format!(
            "{{\n  admin off\n  auto_https off\n}}\n\
             http://127.0.0.1:{port} {{\n  header content-type application/json\n  respond `{BODY}` 200\n}}\n"
        ),
    )?;
    let mut command = pinning::on_server_core(Path::new("caddy"));
    command
        .env("GOMAXPROCS", "1")
        .env("HOME", dir)
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(config);
    Ok(command)
}
