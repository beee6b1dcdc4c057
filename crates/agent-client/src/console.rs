//! Writes to a terminal, or to a file or pipe without colours, symbols and overwritten lines, for all commands.

use nodegate_program::sanitize;
use std::io::{IsTerminal, Write, stdout};
use std::sync::{Mutex, PoisonError};
use terminal_size::{Height, Width, terminal_size};

/// The columns and rows to assume if the real ones are not known.
const USUAL: (usize, usize) = (80, 24);

/// The standard output, with or without colour.
pub struct Console {
    /// True on a terminal, where lines can be overwritten.
    pub is_terminal: bool,
    /// True if the output may have colours.
    pub is_colourful: bool,
    /// True if the next line overwrites the last one.
    unfinished: Mutex<bool>,
}

/// Returns true if the terminal understands escape codes.
#[cfg(not(windows))]
fn takes_escape_codes() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Makes the console understand escape codes; returns false if it can't.
#[cfg(windows)]
fn takes_escape_codes() -> bool {
    anstyle_query::windows::enable_ansi_colors().unwrap_or(false)
}

impl Default for Console {
    fn default() -> Self {
        let is_terminal = stdout().is_terminal() && takes_escape_codes();
        // <https://no-color.org>
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal, is_colourful: is_terminal && !unwanted, unfinished: Mutex::new(false) }
    }
}

impl Console {
    /// Returns the current number of columns and of rows.
    pub fn size() -> (usize, usize) {
        terminal_size().map_or(USUAL, |(Width(columns), Height(rows))| {
            (usize::from(columns).max(20), usize::from(rows).max(5))
        })
    }

    /// Writes a text as it is. Returns false if stdout is closed.
    #[must_use]
    pub fn write(text: &str) -> bool {
        stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()).is_ok()
    }

    /// Prints a line. Ignores a closed stdout, so that the command continues.
    pub fn line(&self, line: &str) {
        let before = self.finish();
        let _ = Self::write(&format!("{before}{}\n", sanitize(line)));
    }

    /// Prints a line that the next one overwrites; only on a terminal.
    pub fn over(&self, line: &str) {
        if self.is_terminal {
            let clipped: String = sanitize(line).chars().take(Self::size().0 - 1).collect();
            let before = self.finish();
            *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = true;
            let _ = Self::write(&format!("{before}{clipped}"));
        }
    }

    /// Marks the line to overwrite as gone, and returns the text that clears it.
    fn finish(&self) -> &'static str {
        let was = std::mem::take(&mut *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner));
        if was { "\r\u{1b}[K" } else { "" }
    }

    /// Clears the line to overwrite, so that output of other programs starts at the margin.
    pub fn clear(&self) {
        let _ = Self::write(self.finish());
    }
}
