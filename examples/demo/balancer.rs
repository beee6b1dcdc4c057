//! Two real `HAProxy` processes in front of the nodes, with the documented configuration except for the addresses;
//! their clients, and a line per second that shows them.

use crate::node::{DemoNode, Network};
use crate::screen::Screen;
use crate::traffic::{Counts, Tally};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const DOCUMENTED: &str = include_str!("../../docs/load-balancers/haproxy/agent-check.cfg");
/// The first words of its last part: the pool of last resort. One of the demo's three nodes is often out.
const LAST_RESORT: &str = "# When no node is Ready";
/// The time limit for a start, which takes a few milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The running balancers and their clients. Drop ends them.
pub(crate) struct Balancer {
    haproxies: Vec<Child>,
    clients: JoinSet<()>,
    pub(crate) tally: Tally,
}

/// Returns the command with the directories in which Debian keeps HAProxy, out of a user's PATH.
fn haproxy() -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("haproxy");
    command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns true if HAProxy is installed.
pub(crate) async fn is_installed() -> bool {
    haproxy().arg("-v").status().await.is_ok_and(|status| status.success())
}

/// Returns the documented configuration with the demo's addresses. Each of the two processes probes from an
/// address and with a name of its own.
fn configuration(name: &str, address: SocketAddr, nodes: &[DemoNode], socket: &Path) -> String {
    // The demo never reloads HAProxy.
    let left_out = ["#", "server ", "server-state-file", "load-server-state-from-file", "use_backend"];
    let pool = DOCUMENTED.split(LAST_RESORT).next().unwrap_or_default();
    let kept = pool.lines().filter(|line| !left_out.iter().any(|word| line.trim_start().starts_with(word)));
    let server = |node: &DemoNode| {
        format!("    server {} {} source {} agent-send {name}\\n\n", node.name, node.ingress, address.ip())
    };
    let text = kept.map(|line| format!("{line}\n")).chain(nodes.iter().map(server)).collect::<String>();
    text.replace("/run/haproxy/nodegate.sock", &socket.display().to_string())
        .replace("10.0.0.10:443", &address.to_string())
}

impl Balancer {
    /// Starts both processes, waits until they answer, and starts their clients.
    pub(crate) async fn start(network: Network, dir: &Path, screen: &Screen) -> io::Result<Self> {
        let (mut haproxies, mut sockets) = (Vec::new(), Vec::new());
        for (name, address) in ["lb-1", "lb-2"].into_iter().zip(network.balancers()) {
            let (file, socket) = (dir.join(format!("{name}.cfg")), dir.join(format!("{name}.sock")));
            std::fs::write(&file, configuration(name, address, &network.nodes(), &socket))?;
            let child = haproxy().args(["-db", "-f"]).arg(file).spawn().map_err(|error| {
                io::Error::other(format!("haproxy: {error}: `hack/install-tools haproxy` installs it"))
            })?;
            let answers = async {
                while servers(&socket).await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(START_PATIENCE, answers).await.map_err(|_| io::Error::other("HAProxy does not start"))?;
            haproxies.push(child);
            sockets.push(socket);
        }
        let (tally, mut clients) = Tally::start(&network.balancers());
        clients.spawn(view(network, sockets, tally.clone(), screen.clone()));
        Ok(Self { haproxies, clients, tally })
    }

    /// Waits until one of the `HAProxy` processes ends by itself, and returns the reason.
    pub(crate) async fn death(&mut self) -> String {
        loop {
            for haproxy in &mut self.haproxies {
                if let Ok(Some(status)) = haproxy.try_wait() {
                    return format!("HAProxy died: {status}");
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the clients and the balancers, and shows the results. Returns true if no request was lost.
    pub(crate) async fn stop(mut self, screen: &Screen) -> bool {
        let counts = self.tally.read();
        self.clients.shutdown().await;
        for haproxy in &mut self.haproxies {
            let _ = haproxy.kill().await;
        }
        let failure = counts.last_failure.as_ref().map(|failure| format!(", the last: {failure}"));
        let failure = failure.unwrap_or_default();
        let text = format!("{} requests through HAProxy, {} lost{failure}", counts.total(), counts.lost);
        screen.line(format!("\n{} {}", screen.mark(counts.lost == 0), screen.bold(text)));
        counts.lost == 0
    }
}

/// Shows each second the traffic of each node, with the sessions of both processes added up, and with both states
/// where they differ.
async fn view(network: Network, sockets: Vec<PathBuf>, tally: Tally, screen: Screen) {
    let (mut before, mut shown) = (Counts::default(), Instant::now());
    loop {
        sleep(Duration::from_secs(1)).await;
        let mut all: HashMap<String, (String, u64)> = HashMap::new();
        for socket in &sockets {
            for (name, state, sessions) in servers(socket).await.unwrap_or_default() {
                let (states, sum) = all.entry(name).or_default();
                *sum += sessions;
                if states.is_empty() {
                    *states = state;
                } else if *states != state {
                    *states = format!("{states}|{state}");
                }
            }
        }
        let (now, at) = (tally.read(), Instant::now());
        let nodes = network.nodes().map(|node| {
            let served = |counts: &Counts| counts.served.get(node.name).copied().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "some hundred requests")]
            let rate = (served(&now) - served(&before)) as f64 / (at - shown).as_secs_f64();
            let (state, sessions) = all.remove(node.name).unwrap_or_default();
            (node.name, rate, state, sessions)
        });
        screen.traffic(&nodes, now.lost, now.total());
        (before, shown) = (now, at);
    }
}

/// Returns the name, the state and the sessions of each server from the stats socket.
async fn servers(socket: &Path) -> io::Result<Vec<(String, String, u64)>> {
    let ask = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"show stat nodes 4 -1\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map(|_| text)
    };
    let text = timeout(Duration::from_secs(1), ask).await.map_err(io::Error::other)??;
    let server = |row: &str| {
        let fields: Vec<&str> = row.split(',').collect();
        // "UP 1/2" is on its way down.
        let state = fields.get(17)?.trim_end_matches(" (agent)").to_owned();
        Some(((*fields.get(1)?).to_owned(), state, fields.get(4)?.parse().unwrap_or_default()))
    };
    Ok(text.lines().filter(|line| line.starts_with("nodes,")).filter_map(server).collect())
}
