//! Writes to a terminal, or to a file or pipe without colours and symbols, for all commands.

use nodegate_program::sanitize;
use std::io::{IsTerminal, Write, stdout};
use terminal_size::{Height, terminal_size};

/// The codes of colours, and of other renditions.
#[allow(missing_docs, reason = "their names say it")]
pub mod colour {
    pub const BOLD: &str = "1";
    pub const DIM: &str = "2";
    pub const RED: &str = "31";
    pub const GREEN: &str = "32";
    pub const YELLOW: &str = "33";
    pub const MAGENTA: &str = "35";
}

/// The standard output, with or without colour.
pub struct Console {
    /// True on a terminal.
    pub is_terminal: bool,
    /// True if the output may have colours.
    pub is_colourful: bool,
}

impl Default for Console {
    fn default() -> Self {
        // Windows' console has to be told that escape codes follow.
        let takes_escape_codes = || {
            anstyle_query::windows::enable_ansi_colors()
                .unwrap_or_else(anstyle_query::term_supports_ansi_color)
        };
        let is_terminal = stdout().is_terminal() && takes_escape_codes();
        Self { is_terminal, is_colourful: is_terminal && !anstyle_query::no_color() }
    }
}

impl Console {
    /// Returns the current number of rows.
    pub fn rows() -> usize {
        terminal_size().map_or(24, |(_, Height(rows))| usize::from(rows).max(5))
    }

    /// Returns a text in this colour, if the output may have colours.
    pub fn painted(&self, colour: &str, text: &str) -> String {
        if self.is_colourful { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Writes a text as it is. Returns false if stdout is closed.
    #[must_use]
    pub fn write(text: &str) -> bool {
        stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()).is_ok()
    }

    /// Prints a line. Ignores a closed stdout, so that the command continues.
    pub fn line(line: &str) {
        let _ = Self::write(&format!("{}\n", sanitize(line)));
    }
}
