//! What is wrong with the settings.

use clap::{Arg, Command};
use std::fmt::Display;
use std::process::ExitCode;

/// Collects a line for each setting that is wrong, so that an operator learns of all of them at the first start.
#[must_use]
pub struct Mistakes {
    program: String,
    /// Whose settings they are.
    command: Command,
    exit_code: u8,
    pub(crate) lines: Vec<String>,
}

impl Mistakes {
    pub(crate) fn new(program: String, command: Command, exit_code: u8) -> Self {
        Self { program, command, exit_code, lines: Vec::new() }
    }

    /// A value is none that the setting takes.
    pub fn value(&mut self, flag: &str, value: impl Display, takes: impl Display) {
        self.setting(flag, format_args!("{:?}: {takes}", value.to_string()));
    }

    /// What a value means, or the default if it is none that the setting takes.
    pub fn sound<T: Default>(
        &mut self,
        flag: &str,
        value: impl Display,
        meaning: Result<T, impl Display>,
    ) -> T {
        meaning.unwrap_or_else(|takes| {
            self.value(flag, value, takes);
            T::default()
        })
    }

    /// Something else is wrong with a setting; it is named by its flag and its variable.
    pub fn setting(&mut self, flag: &str, what: impl Display) {
        let arg = self.command.get_arguments().find(|arg| arg.get_long() == Some(flag));
        debug_assert!(arg.is_some(), "there is no --{flag}");
        let variable = arg.and_then(Arg::get_env).map(|name| format!(" ({})", name.display()));
        self.line(format_args!("--{flag}{} {what}", variable.unwrap_or_default()));
    }

    /// Something is wrong that no single setting is to blame for.
    pub fn line(&mut self, line: impl Display) {
        self.lines.push(line.to_string());
    }

    /// Goes on if nothing is wrong, else tells all of it and gives the exit code.
    pub fn ensure_none(self) -> Result<(), ExitCode> {
        if self.lines.is_empty() {
            return Ok(());
        }
        for line in &self.lines {
            eprintln!("{}: {line}", self.program);
        }
        Err(ExitCode::from(self.exit_code))
    }
}
