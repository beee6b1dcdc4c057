//! Other programs, with bounds on their time and their output.

use rustix::process::{Pid, Signal, kill_process_group};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The maximum number of bytes that a program may print, on each of its outputs.
const MAX_OUTPUT: u64 = 1 << 20;
/// The time for the last output of a program that has ended. A process that it left behind may keep it open.
const LAST: Duration = Duration::from_millis(200);

/// The result of a program that has ended by itself.
#[derive(Debug)]
pub struct Ended {
    /// True if it ended well.
    pub success: bool,
    /// What it printed on its error output, or else on its output.
    pub said: Vec<u8>,
}

/// Runs a program in a process group of its own, which is killed if a bound is exceeded.
pub async fn run(mut command: Command, within: Duration) -> Result<Ended, String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let cannot_run = |error| format!("can't run {name}: {error}");
    let mut child = command.spawn().map_err(cannot_run)?;
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let result = {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = async { tokio::join!(read(stdout, &mut out), read(stderr, &mut err)) };
        tokio::pin!(read);
        let ended = async {
            // A program that prints too much ends when its output is closed.
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
        Ok(Ok(_)) if [&out, &err].iter().any(|said| said.len() as u64 > MAX_OUTPUT) => {
            Err(format!("{name} prints more than {MAX_OUTPUT} bytes"))
        }
        Ok(Ok(status)) => {
            Ok(Ended { success: status.success(), said: if err.is_empty() { out } else { err } })
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

/// Reads an output up to one byte more than the maximum, and closes it.
async fn read(output: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(output) = output {
        let _ = output.take(MAX_OUTPUT + 1).read_to_end(into).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, within: Duration) -> Result<Ended, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        run(command, within).await
    }

    #[tokio::test]
    async fn time_and_output_of_a_program_are_bounded() {
        let minute = Duration::from_mins(1);
        let ended = shell("echo out; echo no >&2; exit 3", minute).await.unwrap();
        assert_eq!((ended.success, ended.said.as_slice()), (false, &b"no\n"[..]));
        for script in ["yes", "yes >&2"] {
            assert!(shell(script, minute).await.unwrap_err().contains("prints more"));
        }
        let hangs = shell("sleep 1000 & wait", Duration::from_millis(50)).await;
        assert!(hangs.unwrap_err().contains("takes longer"));
        // A process that it leaves behind does not keep its result back.
        let left = shell("sleep 100 & echo done", minute);
        assert!(tokio::time::timeout(Duration::from_secs(30), left).await.unwrap().unwrap().success);
    }
}
