//! The compared servers. Each is a process on the servers' core; clients and the simulated API are on another one,
//! so that the scheduler's choices do not change the results.

use crate::load::{BODY, Prober};
use nodegate_testbed::cluster::{Cluster, NODE};
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::system;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

static SERVER_CORE: OnceLock<usize> = OnceLock::new();

/// Keeps this process and its later child processes off the servers' core. Does nothing if there is only one
/// core.
pub(crate) fn pin() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (Some(server), Some(client)) = (cores.next(), cores.next()) else { return };
    let mut set = CpuSet::new();
    set.set(client);
    if sched_setaffinity(None, &set).is_ok() {
        SERVER_CORE.get_or_init(|| server);
    }
}

/// Returns a command that runs on the servers' core.
fn on_server_core(program: &Path) -> Command {
    let Some(core) = SERVER_CORE.get() else { return system(program) };
    let mut taskset = system("taskset");
    taskset.arg("--cpu-list").arg(core.to_string()).arg(program);
    taskset
}

/// A running server. Drop kills it.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Peer {
    /// Starts nodegate, and waits until it answers 200.
    pub(crate) fn nodegate(cluster: &Cluster, program: &Path) -> io::Result<Self> {
        let (mut command, port) = (on_server_core(program), ports::free());
        command
            .env("NODE_NAME", NODE)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("LISTEN_PORT", port.to_string())
            .env("NODEGATE_AGENT_CHECK_PORT", "0")
            .env("NODEGATE_LISTEN_ADDRESS", "127.0.0.1");
        Self::start(command, port, &cluster.dir.path().join("nodegate.log"))
    }

    /// Starts nginx with Debian's configuration, but with one process instead of a master and its workers, and
    /// waits until it answers 200. nodegate answers on one thread, too.
    pub(crate) fn nginx(cluster: &Cluster) -> io::Result<Self> {
        let (dir, port) = (cluster.dir.path().join("nginx"), ports::free());
        std::fs::create_dir_all(&dir)?;
        let (config, at) = (dir.join("nginx.conf"), dir.display());
        let text = format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; default_type application/json; keepalive_requests 1000000000;\n\
             client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at}; uwsgi_temp_path {at};\n\
             scgi_temp_path {at};\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 '{BODY}'; }} }} }}\n"
        );
        std::fs::write(&config, text)?;
        let mut command = on_server_core(Path::new("nginx"));
        command.arg("-c").arg(config).arg("-p").arg(&dir);
        Self::start(command, port, &dir.join("log"))
    }

    fn start(mut command: Command, port: u16, log: &Path) -> io::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
        let child = command
            .spawn()
            .map_err(|error| io::Error::other(format!("can't start: {error}: {command:?}")))?;
        let peer = Self { address: (Ipv4Addr::LOCALHOST, port).into(), child };
        for _ in 0..1000 {
            if matches!(Prober::new(peer.address, false).probe(), Ok(200)) {
                return Ok(peer);
            }
            thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(log)?;
        Err(io::Error::other(format!("{command:?} does not answer 200: {log}")))
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
