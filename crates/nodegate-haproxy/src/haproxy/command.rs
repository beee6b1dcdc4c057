//! Other programs, with bounds on their time and their output.

use crate::haproxy::words::alerts;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

/// The maximum number of bytes that a program may print, on both of its outputs.
const MAX_OUTPUT: u64 = 1 << 20;
/// The time for the last output of a program that has ended. A process that it left behind may keep it open.
const LAST: Duration = Duration::from_millis(200);

/// Runs a program in a process group of its own, which is killed if a bound is exceeded. The error of one that does not
/// succeed is what it printed.
pub async fn run(mut command: Command, within: Duration) -> Result<(), String> {
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
        Ok(Ok(_)) => Err(alerts(&said)),
        ended => {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let late = || format!("{name} takes longer than {} s", within.as_secs());
            Err(ended.map_or_else(|_| late(), |ended| ended.map_or_else(cannot_run, |_| String::new())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

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
        let left = shell("sleep 100 & echo done", minute);
        assert!(tokio::time::timeout(Duration::from_secs(30), left).await.unwrap().is_ok());
    }
}
