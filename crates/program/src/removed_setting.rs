//! Settings that earlier releases had: `read` reports each with what takes its place.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use std::fmt;

/// A setting that an earlier release had. A program that gets it does not start, and says what takes its
/// place; without it, clap would reject the flag with a guess, and ignore the variable.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    flag: &'static str,
    variable: &'static str,
    instead: &'static str,
}

impl Removed {
    /// Returns the removed setting with this flag (without its dashes) and variable. `instead` ends the
    /// sentence "--flag (VARIABLE) was removed: …", such as `use --told-unknown-hold`.
    pub const fn flag(flag: &'static str, variable: &'static str, instead: &'static str) -> Self {
        Self { flag, variable, instead }
    }

    /// Accepts the setting in any form that it may have had.
    pub(crate) fn arg(&self) -> Arg {
        let arg = Arg::new(self.flag).long(self.flag).env(self.variable);
        arg.hide(true).num_args(0..=1).action(ArgAction::Append)
    }

    /// Returns true if the setting is on the command line or in the environment.
    pub(crate) fn is_given(&self, matches: &ArgMatches) -> bool {
        match matches.value_source(self.flag) {
            Some(ValueSource::CommandLine) => true,
            // An empty variable counts as not set.
            Some(ValueSource::EnvVariable) => {
                matches.get_raw(self.flag).into_iter().flatten().any(|value| !value.is_empty())
            }
            _ => false,
        }
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, variable, instead } = self;
        write!(f, "--{flag} ({variable}) was removed: {instead}")
    }
}
