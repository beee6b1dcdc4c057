//! A real `HAProxy` in front of the nodes, set up as docs/load-balancers.md says, but for the addresses.

use crate::agent::Launcher;
use crate::node::DemoNode;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

const DOCUMENTED: &str = include_str!("../../docs/load-balancers/haproxy/agent-check.cfg");
/// Starting takes a few milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// Behind the ports of the last agent.
const PORT_OFFSET: u16 = 30;

pub(crate) struct Haproxy {
    child: Child,
    socket: PathBuf,
}

/// Where clients connect.
pub(crate) fn address(nodes: &[DemoNode]) -> SocketAddr {
    let port = nodes.first().map_or(0, |node| node.port + PORT_OFFSET);
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The documented configuration with the demo's addresses.
fn configuration(nodes: &[DemoNode], dir: &Path) -> String {
    let kept = DOCUMENTED.lines().filter(|line| {
        // Nothing is reloaded here.
        !["#", "server ", "server-state-file", "load-server-state-from-file"]
            .iter()
            .any(|word| line.trim_start().starts_with(word))
    });
    let mut text = kept.collect::<Vec<_>>().join("\n");
    text = text
        .replace("/run/haproxy/", &format!("{}/", dir.display()))
        .replace("10.0.0.10:443", &address(nodes).to_string());
    for node in nodes {
        let (service, agent_port) = (node.service_address(), node.agent_port());
        let _ = write!(text, "\n    server {} {service} agent-port {agent_port}", node.name);
    }
    text + "\n"
}

impl Haproxy {
    /// Starts it and waits until it answers.
    pub(crate) async fn start(launcher: &Launcher, nodes: &[DemoNode], dir: &Path) -> io::Result<Self> {
        let file = dir.join("haproxy.cfg");
        std::fs::write(&file, configuration(nodes, dir))?;
        let mut command = launcher.command(Path::new("haproxy"));
        // Debian keeps it out of a user's path.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")).args(["-db", "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.process_group(0).kill_on_drop(true).spawn().map_err(missing)?;
        let mut haproxy = Self { child, socket: dir.join("nodegate.sock") };
        let ready = async {
            while haproxy.states().await.is_err() {
                if let Some(status) = haproxy.child.try_wait()? {
                    return Err(io::Error::other(format!(
                        "HAProxy ended at once ({status}): is it installed? `hack/install-tools haproxy`"
                    )));
                }
                sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        timeout(START_PATIENCE, ready).await.map_err(|_| io::Error::other("HAProxy does not start"))??;
        Ok(haproxy)
    }

    /// Waits for its end, which nobody has asked for.
    pub(crate) async fn death(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) {
        let _ = self.child.kill().await;
    }

    /// Where its states can be read.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    async fn states(&self) -> io::Result<HashMap<String, String>> {
        states(&self.socket).await
    }
}

fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "haproxy was not found: `hack/install-tools haproxy` installs it")
        }
        _ => error,
    }
}

/// The word on `HAProxy`'s status page for each server.
pub(crate) async fn states(socket: &Path) -> io::Result<HashMap<String, String>> {
    let ask = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"show stat nodes 4 -1\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, io::Error>(text)
    };
    let text = timeout(ANSWER_PATIENCE, ask).await.map_err(io::Error::other)??;
    let rows = text.lines().filter(|line| line.starts_with("nodes,"));
    let word = |row: &str| {
        let mut fields = row.split(',');
        Some((fields.nth(1)?.to_owned(), fields.nth(15)?.to_owned()))
    };
    Ok(rows.filter_map(word).collect())
}
