//! The nodes of the demo, the addresses of the programs on them, and these programs as child processes.

use nodegate_testbed::programs;
use rustix::process::{Pid, Signal, kill_process};
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The names of the nodes with the last numbers of their addresses.
const NODES: [(&str, u8); 3] = [("worker-1", 11), ("worker-2", 12), ("worker-3", 13)];

/// A part of 127.0.0.0/8. Each address is this machine, and no other machine can reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    prefix: [u8; 3],
    /// The port of the first node's ingress. In a real cluster all nodes have the same port. Here they share
    /// a network namespace, in which sockets are counted by port.
    ingress_port: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoNode {
    pub(crate) name: &'static str,
    pub(crate) agent: SocketAddr,
    agent_check: SocketAddr,
    pub(crate) ingress: SocketAddr,
}

impl Network {
    /// Parses the first three numbers, such as `127.0.0`.
    pub(crate) fn parse(prefix: &str, ingress_port: u16) -> Option<Self> {
        let [127, b, c, _] = format!("{prefix}.0").parse::<Ipv4Addr>().ok()?.octets() else { return None };
        Some(Self { prefix: [127, b, c], ingress_port })
    }

    fn address(self, last: u8, port: u16) -> SocketAddr {
        let [a, b, c] = self.prefix;
        (Ipv4Addr::new(a, b, c, last), port).into()
    }

    pub(crate) fn nodes(self) -> [DemoNode; 3] {
        NODES.map(|(name, last)| {
            let ingress = self.address(last, self.ingress_port + u16::from(last - NODES[0].1));
            DemoNode {
                name,
                agent: self.address(last, 25_001),
                agent_check: self.address(last, 25_002),
                ingress,
            }
        })
    }

    /// Returns the addresses of the balancers. Each of the two has one, as with DNS or ECMP in front.
    pub(crate) fn balancers(self) -> [SocketAddr; 2] {
        [8, 9].map(|last| self.address(last, 8080))
    }

    /// Returns an error if another program is at an address of the demo. An agent can't detect that: it shares its port,
    /// so that a new agent can take over from an old one without a gap.
    pub(crate) fn check_free(self) -> Result<(), String> {
        for node in self.nodes() {
            for address in [node.agent, node.agent_check, node.ingress] {
                TcpListener::bind(address).map_err(|reason| {
                    let name = node.name;
                    format!(
                        "{address} of {name} is not free ({reason}): is another demo or nodegate running?"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Starts the real agent of each node. The balancers are named as probers, because the demo itself probes, too.
    pub(crate) fn start_agents(self, dir: &Path, args: &[&str], processes: &mut Processes) -> io::Result<()> {
        let balancers = self.balancers().map(|address| address.ip().to_string()).join(",");
        for node in self.nodes() {
            let mut command = Command::new(programs::agent());
            command.arg(format!("--balancers={balancers}")).args(args);
            command.arg(format!("--traffic-port={}", node.ingress.port()));
            // No variable of the caller may configure the agent, above all no other cluster's credentials.
            command.env_clear().env("NODE_NAME", node.name).env("KUBECONFIG", dir.join("agent.kubeconfig"));
            command.env("LISTEN_PORT", node.agent.port().to_string());
            command.env("NODEGATE_AGENT_CHECK_PORT", node.agent_check.port().to_string());
            command.env("NODEGATE_LISTEN_ADDRESS", node.agent.ip().to_string());
            let log = dir.join(format!("{}.log", node.name));
            processes.start(format!("the agent of {}", node.name), &mut command, &log)?;
        }
        Ok(())
    }
}

/// The number of log lines that the demo shows if a program dies.
const LOG_LINES: usize = 10;
/// The time limit for a program's end. An agent gives requests in flight 5 s; one that takes longer hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(7);

/// The running programs. Drop kills them.
#[derive(Default)]
pub(crate) struct Processes {
    pids: Vec<Pid>,
    /// Each of them ends with its program, and returns the program's last words.
    ends: JoinSet<String>,
}

impl Processes {
    pub(crate) fn start(&mut self, name: String, command: &mut Command, log: &Path) -> io::Result<()> {
        // The terminal's Ctrl-C is for the demo, which then ends the programs in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
        let mut child = command.stderr(std::fs::File::create(log)?).spawn()?;
        self.pids.extend(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let log = log.to_owned();
        self.ends.spawn(async move {
            let status =
                child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
            format!("{name} died: {status}; the end of its log:\n  {last}")
        });
        Ok(())
    }

    /// Waits for a program that ends by itself. Returns its last words.
    pub(crate) async fn death(&mut self) -> String {
        match self.ends.join_next().await {
            Some(Ok(last_words)) => last_words,
            _ => pending().await,
        }
    }

    /// Ends all programs and waits until they are gone.
    pub(crate) async fn stop(self) {
        for pid in self.pids {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = timeout(STOP_PATIENCE, self.ends.join_all()).await;
    }
}
