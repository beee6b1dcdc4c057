//! Shell completion for `kubectl nodegate`: kubectl runs this program as `kubectl_complete-nodegate`, with the words
//! on the command line.

// kubectl expects one candidate a line, with a tab and its meaning, and a last line that says if the shell also
// offers files.

use crate::args::{Args, ClusterArgs, is_named};
use crate::cluster::Cluster;
use clap::{Arg, Args as _, Command, CommandFactory, FromArgMatches};
use nodegate_agent_client::Console;
use nodegate_program::is_object_name;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// The program name that kubectl looks for.
const NAME: &str = "kubectl_complete-nodegate";
/// The longest time that the shell blocks while the names of nodes are fetched. After it, the other
/// candidates are offered.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Returns the words to complete if the program was called under the completion name. The last one is the
/// incomplete word.
pub(crate) fn words() -> Option<Vec<String>> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    let is_asked = Path::new(&name).file_stem() == Some(OsStr::new(NAME));
    is_asked.then(|| words.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Prints the candidates. An error only reduces their number.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let mut program = Args::command();
    program.build();
    let (candidates, directive) = CommandLine::of(&program, words).offer();
    let lines: String = candidates.iter().flat_map(|candidate| [candidate.as_str(), "\n"]).collect();
    let _ = Console::write(&format!("{lines}:{directive}\n"));
    ExitCode::SUCCESS
}

/// The candidates, and the directive for the shell: cobra's number.
type Offer = (Vec<String>, u8);

/// Cobra's `ShellCompDirectiveDefault`: the shell also offers files.
const FILES: u8 = 0;
/// The shell offers no files: Cobra's `ShellCompDirectiveNoFileComp`.
const NO_FILES: u8 = 4;

/// Returns the candidates that begin with the word.
fn fitting(word: &str, candidates: impl IntoIterator<Item = String>) -> Offer {
    (candidates.into_iter().filter(|candidate| candidate.starts_with(word)).collect(), NO_FILES)
}

struct CommandLine<'a> {
    /// The program, or its first command on the line.
    command: &'a Command,
    is_first: bool,
    /// The flag before the last word, if its value is missing.
    flag: Option<&'a Arg>,
    /// The flags with values, by their long names.
    values: Vec<(&'a str, &'a str)>,
    nodes: Vec<&'a str>,
    /// True after `--`: the words are for another program.
    is_behind: bool,
    last: &'a str,
}

impl<'a> CommandLine<'a> {
    fn of(program: &'a Command, words: &'a [String]) -> Self {
        let (last, before) =
            words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
        let (flag, values, nodes, is_behind) = Default::default();
        let mut typed = Self { command: program, is_first: true, flag, values, nodes, is_behind, last };
        for word in before {
            typed.take(word);
            typed.is_first = false;
        }
        typed
    }

    fn take(&mut self, word: &'a str) {
        if let Some(flag) = self.flag.take() {
            self.values.push((flag.get_long().unwrap_or_default(), word));
        } else if self.is_behind || word == "--" {
            self.is_behind = true;
        } else if word.starts_with('-') {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let flag = self.flag_named(name);
            match value {
                Some(value) => {
                    self.values.extend(flag.map(|flag| (flag.get_long().unwrap_or_default(), value)));
                }
                None => self.flag = flag.filter(|flag| !flag.is_require_equals_set()),
            }
        } else if let Some(command) = self.command.find_subcommand(word).filter(|_| self.is_first) {
            self.command = command;
        } else {
            self.nodes.push(word);
        }
    }

    /// Returns the flag with this name, if it takes a value.
    fn flag_named(&self, name: &str) -> Option<&'a Arg> {
        let mut flags = self.command.get_arguments().filter(|flag| flag.get_action().takes_values());
        flags.find(|flag| is_named(flag, name))
    }

    fn offer(&self) -> Offer {
        if self.is_behind {
            return fitting(self.last, []);
        }
        if let Some(flag) = self.flag {
            return values(flag, self.last);
        }
        if let Some((name, value)) = self.last.split_once('=').filter(|(name, _)| name.starts_with('-')) {
            return self.flag_named(name).map_or_else(|| fitting(value, []), |flag| values(flag, value));
        }
        if self.last.starts_with('-') {
            return fitting(self.last, self.flags());
        }
        let commands = self.command.get_subcommands().filter(|_| self.is_first);
        let commands = commands.map(|command| explained(command.get_name(), command.get_about()));
        let names = self.names().into_iter().filter(|name| !self.nodes.contains(&name.as_str()));
        fitting(self.last, commands.chain(names))
    }

    fn flags(&self) -> impl Iterator<Item = String> {
        let flags = self.command.get_arguments().filter(|flag| !flag.is_hide_set());
        flags.filter_map(|flag| Some(explained(&format!("--{}", flag.get_long()?), flag.get_help())))
    }

    /// Returns the names of the nodes in the cluster that the flags select.
    fn names(&self) -> Vec<String> {
        let parser = ClusterArgs::augment_args(Command::new(NAME).no_binary_name(true));
        let is_one = |flag: &str| parser.get_arguments().any(|arg| arg.get_long() == Some(flag));
        let chosen = self.values.iter().filter(|(flag, _)| is_one(flag));
        let flags: Vec<_> = chosen.map(|(flag, value)| format!("--{flag}={value}")).collect();
        let Ok(args) =
            parser.try_get_matches_from(flags.iter()).and_then(|found| ClusterArgs::from_arg_matches(&found))
        else {
            return Vec::new();
        };
        let (found, names) = mpsc::sync_channel(1);
        // A credential program can't be interrupted, but a thread can be abandoned.
        std::thread::spawn(move || found.send(fetched(&args)));
        names.recv_timeout(TIME_LIMIT).ok().flatten().unwrap_or_default()
    }
}

fn fetched(args: &ClusterArgs) -> Option<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async { Cluster::connect(args).await.ok()?.names().await.ok() })?;
    // A shell evaluates them.
    Some(names.into_iter().filter(|name| is_object_name(name)).collect())
}

/// Returns the possible values of a flag: the words in its value name, or files.
fn values(flag: &Arg, word: &str) -> Offer {
    let called = flag.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    let words = called.split('|').filter(|_| called.contains('|')).map(str::to_owned);
    (fitting(word, words).0, if called == "FILE" { FILES } else { NO_FILES })
}

fn explained(name: &str, help: Option<&clap::builder::StyledStr>) -> String {
    help.map_or_else(|| name.to_owned(), |help| format!("{name}\t{help}"))
}
