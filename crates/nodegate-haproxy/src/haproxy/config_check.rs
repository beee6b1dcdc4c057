//! Asks HAProxy's own program about a new file, in the environment of the running master.

use crate::failure::Failure;
use crate::haproxy::command;
use crate::haproxy::launch::Launch;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
const MAX_SOCKETS: u32 = 64;

/// Runs `haproxy -c` on a file, as the master would load it.
pub(crate) async fn check(haproxy: &Path, launch: Option<&Launch>, file: &Path) -> Result<(), Failure> {
    let ended = command::run(command_of(haproxy, launch, file), TIMEOUT).await;
    ended.map_err(|why| Failure::new("check", format!("haproxy -c refuses the new configuration: {why}")))
}

fn command_of(haproxy: &Path, launch: Option<&Launch>, file: &Path) -> Command {
    let sockets = launch.and_then(|launch| launch.variable("LISTEN_FDS")?.to_str()?.parse().ok());
    let stand_in = sockets.and_then(|count: u32| {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        Some((count.min(MAX_SOCKETS), OwnedFd::from(socket)))
    });
    // `bind fd@3` names a socket of systemd. A socket of ours stands in for each: HAProxy only looks at it.
    let mut command = if let Some((count, socket)) = stand_in {
        let copies: Vec<String> = (3..3 + count).map(|fd| format!("{fd}<&0")).collect();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec \"$@\" {}", copies.join(" "))).arg("sh").arg(haproxy);
        shell.stdin(Stdio::from(socket));
        shell
    } else {
        let mut plain = Command::new(haproxy);
        plain.stdin(Stdio::null());
        plain
    };
    command.arg("-c").arg("-f").arg(file);
    if let Some(launch) = launch {
        command.args(&launch.options).current_dir(&launch.directory);
        if let Some(variables) = &launch.environment {
            let path = std::env::var_os("PATH");
            command.env_clear().envs(path.map(|path| ("PATH", path)));
            command.envs(variables.iter().map(|(name, value)| (name, value)));
        }
    }
    command
}
