//! The agents and the balancers: real programs as child processes.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// The number of log lines that the demo shows if a program dies.
const LOG_LINES: usize = 10;
/// The time limit for a program's end. An agent gives requests in flight 5 s; one that takes longer hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(7);

/// The running programs, each with its name and its log. Drop kills them.
#[derive(Default)]
pub(crate) struct Processes(Vec<(String, Child, PathBuf)>);

impl Processes {
    pub(crate) fn start(&mut self, name: String, command: &mut Command, log: &Path) -> io::Result<()> {
        // The terminal's Ctrl-C is for the demo, which then ends the programs in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
        let child = command.stderr(std::fs::File::create(log)?).spawn()?;
        self.0.push((name, child, log.to_owned()));
        Ok(())
    }

    /// Waits for a program that ends by itself. Returns its last words.
    pub(crate) async fn death(&mut self) -> String {
        loop {
            for (name, child, log) in &mut self.0 {
                if let Ok(Some(status)) = child.try_wait() {
                    let log = std::fs::read_to_string(log).unwrap_or_default();
                    let mut last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
                    last.reverse();
                    return format!("{name} died: {status}; the end of its log:\n  {}", last.join("\n  "));
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends all programs and waits until they are gone.
    pub(crate) async fn stop(mut self) {
        for (_, child, _) in &self.0 {
            let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        for (_, child, _) in &mut self.0 {
            if timeout(STOP_PATIENCE, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }
}
