//! The text that HAProxy prints when it refuses something.

use nodegate_program::sanitize_short;

/// The maximum number of alerts in a message.
const ALERTS: usize = 3;
/// The maximum length of a message.
const MAX_CHARS: usize = 600;

/// Returns the first alerts of a text that HAProxy printed, in one line. Its reader has bounded its size.
pub fn alerts(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let alerts = said.lines().filter_map(|line| line.split_once("[ALERT]")).take(ALERTS);
    let mut text = alerts.map(|(_, alert)| without_pid(alert)).collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        text = said.trim().replace('\n', "; ");
    }
    if text.is_empty() { "its log says why".to_owned() } else { sanitize_short(&text, MAX_CHARS) }
}

/// Returns an alert without the process ID that precedes it.
fn without_pid(alert: &str) -> &str {
    let alert = alert.trim_start();
    let rest = alert.strip_prefix('(').and_then(|rest| rest.split_once(") : "));
    rest.map_or(alert, |(_, message)| message).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_alerts_are_the_message_in_one_line() {
        for (said, message) in [
            (
                "[NOTICE] (1) : x\n[ALERT]    (12) : config : parsing [f:1]: no\n[ALERT] (12) : b\n",
                "config : parsing [f:1]: no; b",
            ),
            ("", "its log says why"),
            ("no\x1b[31m such\nfile\n", "no\u{fffd}[31m such; file"),
        ] {
            assert_eq!(alerts(said.as_bytes()), message);
        }
        let long = "[ALERT] x\n".repeat(1000) + &"y".repeat(10_000);
        assert_eq!(alerts(long.as_bytes()), "x; x; x");
    }
}
