//! Two real `HAProxy` processes in front of the nodes, with the documented configuration except for the addresses;
//! their clients, and a line per second that shows them.

use crate::node::{DemoNode, Network, Processes};
use crate::pods::LARGE;
use crate::screen::Screen;
use nodegate_testbed::{http, programs};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const DOCUMENTED: &str = include_str!("../../docs/load-balancers/haproxy/agent-check.cfg");
/// The first words of its last part: the pool of last resort. One of the demo's three nodes is often out.
const LAST_RESORT: &str = "# When no node is Ready";
/// The time limit for a start, which takes a few milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Returns true if HAProxy is installed.
pub(crate) fn is_installed() -> bool {
    programs::system("haproxy").arg("-v").output().is_ok_and(|output| output.status.success())
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

/// Starts both processes, waits until they answer, and starts their clients. Returns the clients' counters.
pub(crate) async fn start(
    network: Network,
    dir: &Path,
    screen: &Screen,
    processes: &mut Processes,
) -> io::Result<Tally> {
    let mut sockets = Vec::new();
    for (name, address) in ["lb-1", "lb-2"].into_iter().zip(network.balancers()) {
        let (file, socket) = (dir.join(format!("{name}.cfg")), dir.join(format!("{name}.sock")));
        std::fs::write(&file, configuration(name, address, &network.nodes(), &socket))?;
        let mut command = Command::from(programs::system("haproxy"));
        let log = dir.join(format!("{name}.log"));
        processes.start(format!("HAProxy {name}"), command.args(["-db", "-f"]).arg(file), &log).map_err(
            |error| io::Error::other(format!("haproxy: {error}: `hack/install-tools haproxy` installs it")),
        )?;
        let answers = async {
            while servers(&socket).is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(START_PATIENCE, answers).await.map_err(|_| io::Error::other("HAProxy does not start"))?;
        sockets.push(socket);
    }
    let tally = Tally::start(&network.balancers());
    let (shown, screen) = (tally.clone(), screen.clone());
    thread::spawn(move || view(network, &sockets, &shown, &screen));
    Ok(tally)
}

/// Shows the results. Returns true if no request was lost.
pub(crate) fn sum_up(tally: &Tally, screen: &Screen) -> bool {
    let counts = tally.read();
    let text = format!("{} requests through HAProxy, {} lost", counts.total(), counts.lost);
    screen.line(format!("\n{} {}", screen.mark(counts.lost == 0), screen.bold(text)));
    counts.lost == 0
}

/// Shows each second the traffic of each node, with the sessions of both processes added up, and with both states
/// where they differ.
fn view(network: Network, sockets: &[PathBuf], tally: &Tally, screen: &Screen) {
    let (mut before, mut shown) = (Counts::default(), Instant::now());
    loop {
        thread::sleep(Duration::from_secs(1));
        let mut all: HashMap<String, (String, u64)> = HashMap::new();
        for (name, state, sessions) in sockets.iter().flat_map(|socket| servers(socket).unwrap_or_default()) {
            let (states, sum) = all.entry(name).or_default();
            *sum += sessions;
            if *states != state {
                *states = if states.is_empty() { state } else { format!("{states}|{state}") };
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
fn servers(socket: &Path) -> io::Result<Vec<(String, String, u64)>> {
    let (mut stream, mut text) = (UnixStream::connect(socket)?, String::new());
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"show stat nodes 4 -1\n")?;
    stream.read_to_string(&mut text)?;
    let server = |row: &str| {
        let fields: Vec<&str> = row.split(',').collect();
        // "UP 1/2" is on its way down.
        let state = fields.get(17)?.trim_end_matches(" (agent)").to_owned();
        Some(((*fields.get(1)?).to_owned(), state, fields.get(4)?.parse().unwrap_or_default()))
    };
    Ok(text.lines().filter(|line| line.starts_with("nodes,")).filter_map(server).collect())
}

/// The numbers of quick and slow clients of each balancer, and the pause between their requests. Slow clients fetch large
/// files: these are the sessions that a drain has to wait for.
pub(crate) const QUICK: u64 = 2;
pub(crate) const SLOW: u64 = 20;
pub(crate) const EVERY: Duration = Duration::from_millis(40);

/// The counters of the requests. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

#[derive(Clone, Default)]
pub(crate) struct Counts {
    /// The number of requests by the node that answered.
    pub(crate) served: HashMap<String, u64>,
    pub(crate) lost: u64,
}

impl Counts {
    pub(crate) fn total(&self) -> u64 {
        self.served.values().sum::<u64>() + self.lost
    }
}

impl Tally {
    /// Starts the clients, which go on to the end of the process.
    pub(crate) fn start(balancers: &[SocketAddr]) -> Self {
        let tally = Self::default();
        for &to in balancers {
            for number in 0..QUICK + SLOW {
                let (tally, path) = (tally.clone(), if number < QUICK { "/" } else { LARGE });
                thread::spawn(move || tally.client(to, path));
            }
        }
        tally
    }

    pub(crate) fn read(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, to: SocketAddr, path: &str) {
        loop {
            match ask(to, path) {
                Ok(node) => *self.lock().served.entry(node).or_default() += 1,
                Err(_) => self.lock().lost += 1,
            }
            thread::sleep(EVERY);
        }
    }
}

/// Returns the node that answered. An answer that is cut short is an error, too.
fn ask(to: SocketAddr, path: &str) -> io::Result<String> {
    let reply = http::get(to, path)?;
    let whole = reply.header("content-length") == Some(&*reply.body.len().to_string());
    if reply.status != 200 || !whole {
        return Err(io::Error::other("the connection ended without a whole answer"));
    }
    Ok(reply.body.trim_start_matches('.').to_owned())
}
