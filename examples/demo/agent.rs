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

/// How many log lines are kept, to be shown if the agent dies.
const LOG_LINES: usize = 10;
/// The end of a dead agent's log is there already.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// What agents are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// How an agent ended, and what it said last.
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

/// How agents are started.
pub(crate) struct Launcher {
    binary: PathBuf,
    with_setpriv: bool,
}

impl Launcher {
    /// The agent that was built together with this example.
    pub(crate) fn find() -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let binary = own.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("nodegate");
        if !binary.is_file() {
            let text = format!("{} is missing: `cargo build --bin nodegate` builds it", binary.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        // Not every setpriv knows it (BusyBox's does not), so it is tried.
        let tried = std::process::Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        Ok(Self { binary, with_setpriv: tried.is_ok_and(|status| status.success()) })
    }

    /// Where the programs are that were built.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.binary.parent().map(Path::to_owned)
    }

    /// A program that does not outlive the thread that starts it, where util-linux is there to arrange it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        if !self.with_setpriv {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program);
        command
    }

    /// Starts an agent. It does not outlive the thread that calls this, where util-linux is there to arrange it.
    pub(crate) fn start(&self, node: DemoNode, kubeconfig: &Path, args: &[&str]) -> io::Result<Agent> {
        let mut command = self.command(&self.binary);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let address = node.agent();
        let mut child = command
            .args(args)
            // Nothing of the caller's environment may set up the agent, above all no other cluster's credentials.
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

/// The last lines that an agent writes until it ends.
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
        // It is not reaped yet, so the id is still its own; and if it has just ended, there is nothing to do.
        let signal = match order {
            Order::Run => return,
            Order::Terminate => Signal::TERM,
            Order::Kill => Signal::KILL,
        };
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, signal));
    }
}
