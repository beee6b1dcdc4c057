//! Collects the mistakes in a program's settings, for `run`, which reports all of them at once.

use clap::{Arg, Command};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Collects a line for each wrong setting, so that an operator learns of all of them at the first start.
#[must_use]
pub struct Mistakes {
    /// The program whose settings they are.
    command: Command,
    pub(crate) lines: Vec<String>,
}

impl Mistakes {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, lines: Vec::new() }
    }

    /// Adds a value that the setting does not accept.
    pub fn value(&mut self, flag: &str, value: impl Display, takes: impl Display) {
        self.setting(flag, format_args!("{:?}: {takes}", value.to_string()));
    }

    /// Parses a value; adds a mistake and returns the default if it is wrong.
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

    /// Adds another mistake in a setting, named by its flag and its variable.
    pub fn setting(&mut self, flag: &str, what: impl Display) {
        let arg = self.command.get_arguments().find(|arg| arg.get_long() == Some(flag));
        debug_assert!(arg.is_some(), "there is no --{flag}");
        let variable = arg.and_then(Arg::get_env).map(|name| format!(" ({})", name.display()));
        self.line(format_args!("--{flag}{} {what}", variable.unwrap_or_default()));
    }

    /// Adds a mistake for each name that the setting gives more than once.
    pub fn repeated<'a>(&mut self, flag: &str, names: impl IntoIterator<Item = &'a String>) {
        let mut known = BTreeSet::new();
        for name in names.into_iter().filter(|name| !known.insert(*name)) {
            self.setting(flag, format_args!("has two of the name {name}; give each its own"));
        }
    }

    /// Adds a mistake that concerns no single setting.
    pub fn line(&mut self, line: impl Display) {
        self.lines.push(line.to_string());
    }
}
