//! The compared servers. Each is a process on the servers' core.

use crate::load::{Connections, Prober};
use crate::pinning;
use nodegate_testbed::cluster::{Cluster, NODE};
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::system;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// nodegate's answer for a ready node. The other servers answer with a constant of the same size.
pub(crate) const BODY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nodegate,
    Nginx,
    Haproxy,
    Go,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Nodegate, Self::Nginx, Self::Haproxy, Self::Go];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nodegate => "nodegate",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Go => "Go, net/http",
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
    pub(crate) fn start(kind: Kind, cluster: &Cluster, nodegate: &Path) -> io::Result<Self> {
        let (port, dir) = (ports::free(), cluster.dir.path());
        let command = match kind {
            Kind::Nodegate => agent(nodegate, cluster, port),
            Kind::Nginx => nginx(&dir.join("nginx"), port)?,
            Kind::Haproxy => haproxy(dir, port)?,
            Kind::Go => go(dir, port)?,
        };
        let log = dir.join(format!("{kind:?}.log"));
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

    fn wait_until_ready(&self, log: &Path) -> io::Result<()> {
        for _ in 0..1000 {
            if matches!(Prober::new(self.address, Connections::New).probe(), Ok(200)) {
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

/// Returns nginx with Debian's configuration, but with one process instead of a master and its workers.
/// nodegate answers on one thread, too.
fn nginx(dir: &Path, port: u16) -> io::Result<Command> {
    std::fs::create_dir_all(dir)?;
    let config = dir.join("nginx.conf");
    let at = dir.display();
    std::fs::write(
        &config,
        format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; default_type application/json; keepalive_requests 1000000000;\n\
             client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at}; uwsgi_temp_path {at};\n\
             scgi_temp_path {at};\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 '{BODY}'; }} }} }}\n"
        ),
    )?;
    let mut command = pinning::on_server_core(Path::new("nginx"));
    command.arg("-c").arg(config).arg("-p").arg(dir);
    Ok(command)
}

fn haproxy(dir: &Path, port: u16) -> io::Result<Command> {
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
    let mut command = pinning::on_server_core(Path::new("haproxy"));
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

/// Returns a server of Go's standard library with one thread, since the other servers have one.
fn go(dir: &Path, port: u16) -> io::Result<Command> {
    let (source, program) = (dir.join("server.go"), dir.join("server"));
    if !program.exists() {
        std::fs::write(&source, include_str!("server.go"))?;
        let mut build = system("go");
        build.env("HOME", dir).env("GOTOOLCHAIN", "local").arg("build").arg("-o").arg(&program).arg(&source);
        let built = build.output()?;
        if !built.status.success() {
            return Err(io::Error::other(format!("go build: {}", String::from_utf8_lossy(&built.stderr))));
        }
    }
    let mut command = pinning::on_server_core(&program);
    command.env("GOMAXPROCS", "1").arg(port.to_string()).arg(BODY);
    Ok(command)
}
