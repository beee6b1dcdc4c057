//! Two real `HAProxy` processes in front of the nodes, with the documented configuration except for the addresses,
//! and their clients.

use crate::node::{DemoNode, Network, Programs};
use crate::pods::LARGE;
use crate::screen::Screen;
use nodegate_testbed::{http, programs, until};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const DOCUMENTED: &str = include_str!("../../docs/load-balancers/haproxy/agent-check.cfg");
/// The first words of its last part: the pools of last resort. One of the demo's three nodes is often out.
const LAST_RESORT: &str = "# When no node is Ready";

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
pub(crate) fn start(network: Network, dir: &Path, started: &mut Programs) -> Tally {
    for (name, address) in ["lb-1", "lb-2"].into_iter().zip(network.balancers()) {
        let (file, socket) = (dir.join(format!("{name}.cfg")), dir.join(format!("{name}.sock")));
        std::fs::write(&file, configuration(name, address, &network.nodes(), &socket)).unwrap();
        let mut haproxy = programs::system("haproxy");
        started.start(format!("HAProxy {name}"), haproxy.args(["-db", "-f"]).arg(file), dir);
        until("HAProxy to start", || UnixStream::connect(&socket).ok());
    }
    Tally::start(&network.balancers())
}

/// Shows the results. Returns true if no request was lost.
pub(crate) fn sum_up(tally: &Tally, screen: &Screen) -> bool {
    let counts = tally.read();
    let text = format!("{} requests through HAProxy, {} lost", counts.total, counts.lost);
    screen.line(format!("\n{} {}", screen.mark(counts.lost == 0), screen.bold(text)));
    counts.lost == 0
}

/// The numbers of quick and slow clients of each balancer, and the pause between their requests. Slow clients fetch large
/// files: these are the sessions that a drain has to wait for.
pub(crate) const QUICK: u64 = 2;
pub(crate) const SLOW: u64 = 20;
pub(crate) const EVERY: Duration = Duration::from_millis(40);

/// The counters of all requests, and of the lost ones. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<[AtomicU64; 2]>);

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) lost: u64,
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
        let [total, lost] = self.0.each_ref().map(|count| count.load(Ordering::SeqCst));
        Counts { total, lost }
    }

    fn client(&self, to: SocketAddr, path: &str) {
        loop {
            let is_lost = !is_answered(to, path);
            self.0[0].fetch_add(1, Ordering::SeqCst);
            self.0[1].fetch_add(u64::from(is_lost), Ordering::SeqCst);
            thread::sleep(EVERY);
        }
    }
}

/// Returns true for a 200. An answer that is cut short is none.
fn is_answered(to: SocketAddr, path: &str) -> bool {
    http::get(to, path).is_ok_and(|reply| {
        let length = reply.body.len().to_string();
        reply.status == 200 && reply.header("content-length") == Some(length.as_str())
    })
}
