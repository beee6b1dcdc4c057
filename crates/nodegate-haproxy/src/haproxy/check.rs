//! Other programs, with bounds on their time and their output, and `haproxy -c`.

use crate::failure::Failure;
use nodegate_program::sanitize_short;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs `haproxy -c` on a file.
pub(crate) async fn check(haproxy: &Path, file: &Path) -> Result<(), Failure> {
    let mut command = Command::new(haproxy);
    command.arg("-c").arg("-f").arg(file).stdin(Stdio::null());
    let ended = run(command, TIMEOUT).await;
    ended.map_err(|why| Failure::new("check", format!("haproxy -c refuses the new configuration: {why}")))
}

/// The maximum number of bytes that a program may print, on both of its outputs.
const MAX_OUTPUT: u64 = 1 << 20;
/// The time for the last output of a program that has ended. A process that it left behind may keep it open.
const LAST: Duration = Duration::from_millis(200);

const ALERTS: usize = 3;
const MAX_CHARS: usize = 600;

/// Runs a program in a process group, which is killed if a bound is exceeded. The error is what it printed.
pub(crate) async fn run(mut command: Command, within: Duration) -> Result<(), String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let cannot_run = |error: io::Error| format!("can't run {name}: {error}");
    let (output, theirs) = io::pipe().map_err(cannot_run)?;
    command.stdout(theirs.try_clone().map_err(cannot_run)?).stderr(theirs);
    let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(cannot_run)?;
    // With it, our copies of the pipe's other end are gone.
    drop(command);
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let output = Receiver::from_owned_fd(output.into()).map_err(cannot_run)?;
    let mut said = Vec::new();
    let result = {
        // A program that prints too much ends when its output is closed.
        let read = async { output.take(MAX_OUTPUT + 1).read_to_end(&mut said).await };
        let mut read = Box::pin(read);
        let ended = async {
            tokio::select! {
                status = child.wait() => {
                    let _ = tokio::time::timeout(LAST, &mut read).await;
                    status
                }
                _ = &mut read => child.wait().await,
            }
        };
        tokio::time::timeout(within, ended).await
    };
    match result {
        Ok(Ok(_)) if said.len() as u64 > MAX_OUTPUT => {
            Err(format!("{name} prints more than {MAX_OUTPUT} bytes"))
        }
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => {
            Err(alerts(&said).unwrap_or_else(|| format!("{name} says nothing, and ends with {status}")))
        }
        ended => {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let late = || format!("{name} takes longer than {} s", within.as_secs());
            Err(ended.map_or_else(|_| late(), |ended| ended.map_or_else(cannot_run, |_| String::new())))
        }
    }
}

/// Returns the first alerts and warnings of a text that HAProxy printed, in one line. Its reader has bounded its size.
pub(crate) fn alerts(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let of = |kind| {
        said.lines().filter_map(move |line| line.split_once(kind)).map(|(_, alert)| without_pid(alert))
    };
    let alerts: Vec<&str> = of("[ALERT]").chain(of("[WARNING]")).take(ALERTS).collect();
    let text = if alerts.is_empty() { said.trim().replace('\n', "; ") } else { alerts.join("; ") };
    (!text.is_empty()).then(|| sanitize_short(&text, MAX_CHARS))
}

fn without_pid(alert: &str) -> &str {
    let alert = alert.trim_start();
    let rest = alert.strip_prefix('(').and_then(|rest| rest.split_once(") : "));
    rest.map_or(alert, |(_, message)| message).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, within: Duration) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        run(command, within).await
    }

    #[tokio::test]
    async fn time_and_output_of_a_program_are_bounded() {
        let minute = Duration::from_mins(1);
        assert_eq!(shell("echo out; echo no >&2; exit 3", minute).await, Err("out; no".to_owned()));
        for script in ["yes", "yes >&2"] {
            assert!(shell(script, minute).await.unwrap_err().contains("prints more"));
        }
        let hangs = shell("sleep 1000 & wait", Duration::from_millis(50)).await;
        assert!(hangs.unwrap_err().contains("takes longer"));
        // A process that it leaves behind does not keep its result back.
        let pid = tempfile::NamedTempFile::new().unwrap();
        let leaves = format!("sleep 100 & echo $! >{}", pid.path().display());
        assert!(tokio::time::timeout(Duration::from_secs(30), shell(&leaves, minute)).await.unwrap().is_ok());
        shell(&format!("kill $(cat {})", pid.path().display()), minute).await.unwrap();
    }

    #[test]
    fn the_first_alerts_are_the_message_in_one_line() {
        for (said, message) in [
            (
                "[WARNING] (1) : x\n[ALERT]    (12) : config : parsing [f:1]: no\n[ALERT] (12) : b\n",
                "config : parsing [f:1]: no; b; x",
            ),
            ("no\x1b[31m such\nfile\n", "no\u{fffd}[31m such; file"),
        ] {
            assert_eq!(alerts(said.as_bytes()).as_deref(), Some(message));
        }
        let long = "[ALERT] x\n".repeat(1000) + &"y".repeat(10_000);
        assert_eq!((alerts(long.as_bytes()).as_deref(), alerts(b" ")), (Some("x; x; x"), None));
    }
}
