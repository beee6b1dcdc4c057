//! Settings that earlier releases had: `read` reports each with what takes its place.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

/// The settings that earlier releases of a program had. A program that gets one does not start, and says what takes
/// its place; without this list, clap would reject the flag with a guess, and ignore the variable.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    prefix: &'static str,
    flags: &'static [(&'static str, &'static str)],
}

impl Removed {
    /// Returns the removed settings. Each is a flag without its dashes and the end of the sentence "--flag (VARIABLE)
    /// was removed: …", such as `use --unknown-hold`. A variable is `prefix` and its flag in capitals.
    pub const fn new(prefix: &'static str, flags: &'static [(&'static str, &'static str)]) -> Self {
        Self { prefix, flags }
    }

    /// Accepts the flags in any form that they may have had.
    pub(crate) fn args(&self) -> impl Iterator<Item = Arg> {
        let arg = |flag: &'static str| Arg::new(flag).long(flag).hide(true);
        self.flags.iter().map(move |(flag, _)| arg(flag).num_args(0..=1).action(ArgAction::Append))
    }

    /// Returns a sentence for each setting that is on the command line or in the environment.
    pub(crate) fn given(&self, matches: &ArgMatches) -> Vec<String> {
        let sentence = |(flag, instead): &(&str, &str)| {
            let variable = format!("{}_{}", self.prefix, flag.to_ascii_uppercase().replace('-', "_"));
            // An empty variable counts as not set.
            let is_set = std::env::var_os(&variable).is_some_and(|value| !value.is_empty());
            let is_given = is_set || matches.value_source(flag) == Some(ValueSource::CommandLine);
            is_given.then(|| format!("--{flag} ({variable}) was removed: {instead}"))
        };
        self.flags.iter().filter_map(sentence).collect()
    }
}
