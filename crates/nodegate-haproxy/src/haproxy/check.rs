//! `haproxy -c`, with bounds on its time and its output, and the alerts that HAProxy prints.

use crate::failure::Failure;
use nodegate_program::{os_words, sanitize_short};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The maximum number of bytes that it may print.
const MAX_OUTPUT: u64 = 1 << 20;
const ALERTS: usize = 3;
const MAX_CHARS: usize = 600;

/// Runs `haproxy -c` on a file.
pub(crate) async fn check(haproxy: &Path, file: &Path) -> Result<(), Failure> {
    let mut command = Command::new(haproxy);
    command.arg("-c").arg("-f").arg(file);
    let ended = run(command, TIMEOUT).await;
    ended.map_err(|why| Failure::new("check", why))
}

/// Runs HAProxy, and kills it if it takes too long. The error says what it printed.
async fn run(mut command: Command, within: Duration) -> Result<(), String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let cannot_run = |error: io::Error| {
        format!("can't run --haproxy (NODEGATE_HAPROXY_BINARY) {name:?}: {}", os_words(&error))
    };
    let refuses = |why: String| format!("haproxy -c refuses the new configuration: {why}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(cannot_run)?;
    let mut said = Vec::new();
    let ended = async {
        if let Some(output) = child.stderr.take() {
            // One that prints too much ends when its output is closed.
            output.take(MAX_OUTPUT).read_to_end(&mut said).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(within, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(refuses(
            alerts(&said).unwrap_or_else(|| format!("{name} says nothing, and ends with {status}")),
        )),
        Ok(Err(error)) => Err(cannot_run(error)),
        Err(_) => Err(refuses(format!("{name} takes longer than {} s", within.as_secs()))),
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

    #[tokio::test]
    async fn time_and_output_of_a_program_are_bounded() {
        for (script, within, says) in [
            ("echo no >&2; exit 3", TIMEOUT, "no"),
            ("exit 3", TIMEOUT, "ends with exit status: 3"),
            ("yes y >&2", TIMEOUT, "y; y"),
            ("exec sleep 1000", Duration::from_millis(50), "takes longer"),
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let error = run(command, within).await.unwrap_err();
            assert!(error.contains(says) && error.len() < 2 * MAX_CHARS, "{error}");
        }
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
