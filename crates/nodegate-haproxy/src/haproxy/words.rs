//! The text that HAProxy prints when it refuses something.

use std::fmt;

/// The maximum number of alerts in a message.
const ALERTS: usize = 3;
/// The maximum length of a message.
const MAX_CHARS: usize = 600;

/// The text that HAProxy printed. Its first alerts represent it in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(String);

impl Words {
    /// Keeps a text, whose size its reader has bounded.
    pub fn new(said: &[u8]) -> Self {
        Self(String::from_utf8_lossy(said).into_owned())
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alerts: Vec<&str> = self
            .0
            .lines()
            .filter_map(|line| line.split_once("[ALERT]"))
            .map(|(_, said)| message(said))
            .collect();
        let text = match alerts.get(..ALERTS.min(alerts.len())) {
            None | Some([]) => self.0.trim().replace('\n', "; "),
            Some(first) => first.join("; "),
        };
        let text: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect();
        f.write_str(if text.is_empty() { "its log says why" } else { &text })
    }
}

/// Returns an alert without the process ID that precedes it.
fn message(said: &str) -> &str {
    let said = said.trim_start();
    let rest = said.strip_prefix('(').and_then(|rest| rest.split_once(") : "));
    rest.map_or(said, |(_, message)| message).trim()
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
            ("no\x1b[31m such\nfile\n", "no [31m such; file"),
        ] {
            assert_eq!(Words::new(said.as_bytes()).to_string(), message);
        }
        let long = "[ALERT] x\n".repeat(1000) + &"y".repeat(10_000);
        assert_eq!(Words::new(long.as_bytes()).to_string(), "x; x; x");
    }
}
