//! Prints the progress of a wait: lines, and on a terminal the current state below them.

use std::io::{IsTerminal, Write, stdout};

/// The sequence that returns to the start of the line and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// The width of most terminals; a line that wraps could not be cleared.
const MOST: usize = 78;

pub(super) struct Terminal {
    /// True on a terminal; a log gets no lines about the state.
    live: bool,
    shown: bool,
}

impl Terminal {
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { live: stdout().is_terminal() && !dumb, shown: false }
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: &str) {
        let clear = self.clear();
        write(&format!("{clear}{line}\n"));
    }

    /// Replaces the line about the state.
    pub(super) fn now(&mut self, line: &str) {
        if self.live {
            let clear = self.clear();
            let line: String = line.chars().take(MOST).collect();
            write(&format!("{clear}{line}"));
            self.shown = true;
        }
    }

    /// Ends the output.
    pub(super) fn end(&mut self) {
        write(self.clear());
    }

    fn clear(&mut self) -> &'static str {
        if std::mem::take(&mut self.shown) { CLEAR } else { "" }
    }
}

/// Ignores a closed stdout; the exit code still has the result.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
