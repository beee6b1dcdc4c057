//! One real agent as a child process.

use crate::node::DemoNode;
use crate::screen::Screen;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The number of log lines that the demo keeps, to show them if the agent dies.
const LOG_LINES: usize = 10;
/// The time limit for reading the log of a dead agent, whose end has already been written.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// An order to all agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    Terminate,
    Kill,
}

/// The end of an agent, with its last log lines.
pub(crate) struct Death {
    node: &'static str,
    status: io::Result<ExitStatus>,
    log: VecDeque<String>,
}

impl Death {
    pub(crate) fn show(&self, screen: &Screen) {
        let how = match &self.status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let last = if self.log.is_empty() { "; it logged nothing" } else { "; the end of its log:" };
        screen.line(screen.bold(format!("the agent of {} died: {how}{last}", self.node)));
        self.log.iter().for_each(|line| screen.line(format!("  {line}")));
    }
}

/// The way to start agents.
pub(crate) struct Launcher {
    binary: PathBuf,
    with_setpriv: bool,
}

impl Launcher {
    /// Returns a launcher for the agent that was built together with this example.
    pub(crate) fn find() -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let binary = own.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("nodegate");
        if !binary.is_file() {
            let text = format!("{} is missing: `cargo build --bin nodegate` builds it", binary.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        // Not every setpriv supports this option (BusyBox's does not), so the demo tries it.
        let tried = std::process::Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        Ok(Self { binary, with_setpriv: tried.is_ok_and(|status| status.success()) })
    }

    /// Returns the directory of the built programs.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.binary.parent().map(Path::to_owned)
    }

    /// Returns a command that does not outlive the thread that starts it, if util-linux is installed.
    pub(crate) fn command(&self, program: &Path) -> Command {
        if !self.with_setpriv {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program);
        command
    }

    /// Starts an agent. It does not outlive the calling thread, if util-linux is installed.
    pub(crate) fn start(&self, node: DemoNode, kubeconfig: &Path, args: &[&str]) -> io::Result<Agent> {
        let mut command = self.command(&self.binary);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let address = node.agent();
        let mut child = command
            .args(args)
            // No variable of the caller may configure the agent, above all no other cluster's credentials.
            .env_clear()
            .env("PATH", path)
            .env("NODE_NAME", node.name)
            .env("KUBECONFIG", kubeconfig)
            .env("LISTEN_PORT", address.port().to_string())
            .env("NODEGATE_AGENT_CHECK_PORT", node.agent_check().port().to_string())
            .env("NODEGATE_LISTEN_ADDRESS", address.ip().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // The terminal's Ctrl-C is for the demo, which then ends the agents in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let log = tokio::spawn(last_lines(child.stderr.take()));
        Ok(Agent { node: node.name, child, log })
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

/// A running agent.
pub(crate) struct Agent {
    node: &'static str,
    child: Child,
    log: JoinHandle<VecDeque<String>>,
}

impl Agent {
    /// Follows orders until the agent has ended.
    pub(crate) async fn run(mut self, mut orders: watch::Receiver<Order>) -> Death {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                Ok(()) = orders.changed() => {
                    let order = *orders.borrow_and_update();
                    self.follow(order);
                }
            }
        };
        let log = timeout(LOG_PATIENCE, self.log).await;
        let log = log.ok().and_then(Result::ok).unwrap_or_default();
        Death { node: self.node, status, log }
    }

    fn follow(&mut self, order: Order) {
        // The process is not reaped yet, so the id still belongs to it. If it has just ended, the signal has
        // no effect.
        let signal = match order {
            Order::Run => return,
            Order::Terminate => Signal::TERM,
            Order::Kill => Signal::KILL,
        };
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, signal));
    }
}
