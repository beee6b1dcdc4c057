//! The compared servers, each a process on the servers' core; clients and the simulated API are on another.

use crate::load::BODY;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::system;
use nodegate_testbed::{Scenario, http, until};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

static SERVER_CORE: OnceLock<usize> = OnceLock::new();

/// Keeps this process and its later child processes off the servers' core, if there are two.
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

fn on_server_core(program: &Path) -> Command {
    let Some(core) = SERVER_CORE.get() else { return system(program) };
    let mut taskset = system("taskset");
    taskset.arg("--cpu-list").arg(core.to_string()).arg(program);
    taskset
}

/// A running server. Drop ends it.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    _program: Box<dyn Any>,
}

impl Peer {
    /// Starts nodegate, and waits until it answers 200.
    pub(crate) fn nodegate(cluster: &Scenario, program: &Path) -> Self {
        let agent = cluster.launch(on_server_core(program));
        agent.wait_ready();
        Self { address: agent.address(), pid: agent.pid(), _program: Box::new(agent) }
    }

    /// Starts nginx with one process instead of a master and its workers, as nodegate has one thread.
    pub(crate) fn nginx(cluster: &Scenario) -> Self {
        let (dir, port) = (cluster.file("nginx"), ports::free());
        std::fs::create_dir_all(&dir).unwrap();
        let (config, at) = (dir.join("nginx.conf"), dir.display());
        let text = format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; default_type application/json; keepalive_requests 1000000000;\n\
             client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at}; uwsgi_temp_path {at};\n\
             scgi_temp_path {at};\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 '{BODY}'; }} }} }}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = on_server_core(Path::new("nginx"));
        let program = Program::start(command.arg("-c").arg(config).arg("-p").arg(&dir));
        let address = (Ipv4Addr::LOCALHOST, port).into();
        until("nginx to answer", || http::get(address, "/").ok());
        Self { address, pid: program.pid(), _program: Box::new(program) }
    }
}
