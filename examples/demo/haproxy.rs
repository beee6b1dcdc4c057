//! Two real `HAProxy` processes in front of the nodes, with the configuration of docs/load-balancers.md
//! except for the addresses.

use crate::agent::Launcher;
use crate::node::{DemoNode, Network};
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

const DOCUMENTED: &str = include_str!("../../docs/load-balancers/haproxy/agent-check.cfg");
/// The first words of its last part.
const LAST_RESORT: &str = "# When no node is Ready";
const PORT: u16 = 8080;
/// The time limit for a start, which takes a few milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Haproxy {
    child: Child,
    socket: PathBuf,
}

/// A server's state in one HAProxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    /// The status word on the status page.
    pub(crate) state: String,
    pub(crate) sessions: u64,
}

/// Returns the addresses for clients. Each of the two processes has one, as with DNS or ECMP in front.
pub(crate) fn addresses(network: Network) -> [SocketAddr; 2] {
    network.balancers().map(|address| (address, PORT).into())
}

/// Returns a PATH with the directories of HAProxy. Debian keeps it out of a user's PATH.
fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/usr/local/sbin")
}

/// Returns true if HAProxy is installed.
pub(crate) fn is_installed() -> bool {
    let tried = Command::new("haproxy").env("PATH", path()).arg("-v").stdin(Stdio::null()).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Returns the documented configuration with the demo's addresses. Each of the two processes probes from an
/// address and with a name of its own.
fn configuration(name: &str, address: Ipv4Addr, nodes: &[DemoNode], dir: &Path) -> String {
    // The last part is the pool of last resort. The demo omits it, since one of its three nodes is often out.
    let pool = DOCUMENTED.split(LAST_RESORT).next().unwrap_or_default();
    let kept = pool.lines().filter(|line| {
        // The demo never reloads HAProxy.
        !["#", "server ", "server-state-file", "load-server-state-from-file", "use_backend"]
            .iter()
            .any(|word| line.trim_start().starts_with(word))
    });
    let mut text = kept.collect::<Vec<_>>().join("\n");
    text = text
        .replace("/run/haproxy/nodegate.sock", &socket(dir, name).display().to_string())
        .replace("10.0.0.10:443", &SocketAddr::from((address, PORT)).to_string());
    for node in nodes {
        let _ = write!(
            text,
            "\n    server {} {} source {address} agent-send {name}\\n",
            node.name,
            node.ingress()
        );
    }
    text + "\n"
}

fn socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.sock"))
}

impl Haproxy {
    /// Starts both processes.
    pub(crate) async fn start_both(
        launcher: &Launcher,
        network: Network,
        dir: &Path,
    ) -> io::Result<[Self; 2]> {
        let [first, second] = network.balancers();
        let nodes = network.nodes();
        let start = async |name, address| Self::start(launcher, name, address, &nodes, dir).await;
        Ok([start("lb-1", first).await?, start("lb-2", second).await?])
    }

    /// Starts one process and waits until it answers.
    async fn start(
        launcher: &Launcher,
        name: &str,
        address: Ipv4Addr,
        nodes: &[DemoNode],
        dir: &Path,
    ) -> io::Result<Self> {
        let file = dir.join(format!("{name}.cfg"));
        std::fs::write(&file, configuration(name, address, nodes, dir))?;
        let mut command = launcher.command(Path::new("haproxy"));
        command.env("PATH", path()).args(["-db", "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.process_group(0).kill_on_drop(true).spawn().map_err(missing)?;
        let mut haproxy = Self { child, socket: socket(dir, name) };
        let ready = async {
            while servers(&haproxy.socket).await.is_err() {
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

    /// Waits until the process ends by itself.
    pub(crate) async fn death(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the process.
    pub(crate) async fn stop(mut self) {
        let _ = self.child.kill().await;
    }

    /// Returns the path of the stats socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
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

/// Returns the state of each server from the stats socket.
pub(crate) async fn servers(socket: &Path) -> io::Result<HashMap<String, Server>> {
    let ask = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"show stat nodes 4 -1\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, io::Error>(text)
    };
    let text = timeout(ANSWER_PATIENCE, ask).await.map_err(io::Error::other)??;
    let rows = text.lines().filter(|line| line.starts_with("nodes,"));
    let server = |row: &str| {
        let fields: Vec<&str> = row.split(',').collect();
        // "UP 1/2" is on its way down.
        let state = fields.get(17)?.trim_end_matches(" (agent)").to_owned();
        let sessions = fields.get(4)?.parse().unwrap_or_default();
        Some(((*fields.get(1)?).to_owned(), Server { state, sessions }))
    };
    Ok(rows.filter_map(server).collect())
}
