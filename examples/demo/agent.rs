//! The real agents as child processes.

use crate::node::DemoNode;
use nodegate_testbed::programs;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The number of log lines that the demo keeps, to show them if the agent dies.
const LOG_LINES: usize = 10;
/// The time limit for an agent's end. An agent gives requests in flight 5 s; one that takes longer hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(7);

pub(crate) struct Agents(Vec<Agent>);

struct Agent {
    node: &'static str,
    child: Child,
    log: JoinHandle<VecDeque<String>>,
}

impl Agents {
    /// Starts an agent for each node. In case of an error, it kills the agents that already run.
    pub(crate) fn start(nodes: &[DemoNode], kubeconfig: &Path, args: &[String]) -> io::Result<Self> {
        let start = |node: &DemoNode| {
            let mut child = Command::new(programs::agent())
                .args(args)
                .arg(format!("--traffic-port={}", node.ingress.port()))
                // No variable of the caller may configure the agent, above all no other cluster's credentials.
                .env_clear()
                .env("NODE_NAME", node.name)
                .env("KUBECONFIG", kubeconfig)
                .env("LISTEN_PORT", node.agent.port().to_string())
                .env("NODEGATE_AGENT_CHECK_PORT", node.agent_check.port().to_string())
                .env("NODEGATE_LISTEN_ADDRESS", node.agent.ip().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                // The terminal's Ctrl-C is for the demo, which then ends the agents in order.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()?;
            let log = tokio::spawn(last_lines(child.stderr.take()));
            Ok(Agent { node: node.name, child, log })
        };
        nodes.iter().map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for an agent that ends by itself. Returns its last words.
    pub(crate) async fn death(&mut self) -> String {
        loop {
            for agent in &mut self.0 {
                if let Ok(Some(status)) = agent.child.try_wait() {
                    return agent.last_words(status).await;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends all agents and waits until they are gone.
    pub(crate) async fn stop(mut self) {
        for agent in &self.0 {
            let pid = agent.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        for agent in &mut self.0 {
            if timeout(STOP_PATIENCE, agent.child.wait()).await.is_err() {
                let _ = agent.child.kill().await;
            }
        }
    }
}

impl Agent {
    async fn last_words(&mut self, status: ExitStatus) -> String {
        let log = timeout(Duration::from_secs(1), &mut self.log).await.ok().and_then(Result::ok);
        let lines: Vec<String> =
            log.unwrap_or_default().into_iter().map(|line| format!("\n  {line}")).collect();
        let last = if lines.is_empty() { "; it logged nothing" } else { "; the end of its log:" };
        format!("the agent of {} died: {status}{last}{}", self.node, lines.concat())
    }
}

/// Returns the last lines that an agent writes before it ends.
async fn last_lines(stderr: Option<ChildStderr>) -> VecDeque<String> {
    let mut last = VecDeque::new();
    let Some(stderr) = stderr else { return last };
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if last.len() == LOG_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    last
}
