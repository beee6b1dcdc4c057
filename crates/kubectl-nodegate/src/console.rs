//! Where it is shown: a terminal, or a file or pipe, which gets neither colours nor symbols nor lines that are written over.

use crate::platform;
use nodegate_agent_client::harmless;
use std::io::{IsTerminal, Write, stdout};
use std::sync::{Mutex, PoisonError};
use terminal_size::{Height, Width, terminal_size};

/// How much room there is where nothing is known of it.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// The room of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// Stdout.
pub(crate) struct Console {
    terminal: bool,
    colourful: bool,
    /// Whether the last line is to be written over.
    unfinished: Mutex<bool>,
}

impl Console {
    pub(crate) fn new() -> Self {
        let terminal = stdout().is_terminal() && platform::takes_escape_codes();
        // <https://no-color.org>
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colourful: terminal && !unwanted, unfinished: Mutex::new(false) }
    }

    /// Returns true if it is a terminal on which lines can be written over.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether colours may be used.
    pub(crate) fn is_colourful(&self) -> bool {
        self.colourful
    }

    /// How much room there is now.
    pub(crate) fn size() -> Size {
        terminal_size().map_or(USUAL, |(Width(columns), Height(rows))| Size {
            columns: usize::from(columns).max(20),
            rows: usize::from(rows).max(5),
        })
    }

    /// Writes a text as it is. False if nobody reads it any more.
    #[must_use]
    pub(crate) fn write(text: &str) -> bool {
        stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()).is_ok()
    }

    /// A line that stays. Nobody is left to tell if stdout is closed; what is done goes on.
    pub(crate) fn line(&self, line: &str) {
        let before = self.finish();
        let _ = Self::write(&format!("{before}{}\n", harmless(line)));
    }

    /// A line that the next one is written over; only on a terminal.
    pub(crate) fn over(&self, line: &str) {
        if self.terminal {
            let clipped: String = harmless(line).chars().take(Self::size().columns - 1).collect();
            let before = self.finish();
            *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = true;
            let _ = Self::write(&format!("{before}{clipped}"));
        }
    }

    /// Takes the line away that is to be written over; gives what is to be written for that.
    fn finish(&self) -> &'static str {
        let was = std::mem::take(&mut *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner));
        if was { "\r\u{1b}[K" } else { "" }
    }

    /// What others write to the same terminal begins at its margin.
    pub(crate) fn clear(&self) {
        let _ = Self::write(self.finish());
    }
}
