//! What is said while one waits: lines, and on a terminal how things stand below them.

use std::io::{IsTerminal, Write, stdout};

/// Goes back to the beginning of the line, and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// As much fits on a line of most terminals; a line that wraps could not be cleared.
const MOST: usize = 78;

pub(super) struct Terminal {
    /// A log gets lines alone.
    live: bool,
    shown: bool,
}

impl Terminal {
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { live: stdout().is_terminal() && !dumb, shown: false }
    }

    /// Something new.
    pub(super) fn line(&mut self, line: &str) {
        let clear = self.clear();
        write(&format!("{clear}{line}\n"));
    }

    /// How things stand.
    pub(super) fn now(&mut self, line: &str) {
        if self.live {
            let clear = self.clear();
            let line: String = line.chars().take(MOST).collect();
            write(&format!("{clear}{line}"));
            self.shown = true;
        }
    }

    /// Nothing more will be said.
    pub(super) fn end(&mut self) {
        write(self.clear());
    }

    fn clear(&mut self) -> &'static str {
        if std::mem::take(&mut self.shown) { CLEAR } else { "" }
    }
}

/// Nobody is left to tell if stdout is closed; the exit code still says it.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
