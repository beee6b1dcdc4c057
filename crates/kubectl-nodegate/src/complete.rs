//! Shell completion for `kubectl nodegate`: kubectl runs this program as `kubectl_complete-nodegate`, with the words
//! on the command line.

// kubectl expects one candidate a line, with a tab and its meaning, and a last line that says if the shell also
// offers files.

use crate::args::{Args, ClusterArgs, is_named};
use crate::cluster::Cluster;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
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
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let (candidates, directive) = offer(&program, before, last);
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

/// Returns the candidates for the last word.
fn offer(program: &Command, before: &[String], last: &str) -> Offer {
    let command = before.first().and_then(|word| program.find_subcommand(word)).unwrap_or(program);
    let flag_named = |name: &str| {
        let mut flags = command.get_arguments().filter(|flag| flag.get_action().takes_values());
        flags.find(|flag| is_named(flag, name))
    };
    let is_another_programs = before.iter().any(|word| word == "--");
    if is_another_programs {
        return fitting(last, []);
    }
    let without_value = before.last().and_then(|word| flag_named(word));
    if let Some(flag) = without_value.filter(|flag| !flag.is_require_equals_set()) {
        return values(flag, last);
    }
    if let Some((name, value)) = last.split_once('=').filter(|(name, _)| name.starts_with('-')) {
        return flag_named(name).map_or_else(|| fitting(value, []), |flag| values(flag, value));
    }
    if last.starts_with('-') {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let flags =
            flags.filter_map(|flag| Some(explained(&format!("--{}", flag.get_long()?), flag.get_help())));
        return fitting(last, flags);
    }
    let commands = program.get_subcommands().filter(|_| before.is_empty());
    let commands = commands.map(|command| explained(command.get_name(), command.get_about()));
    fitting(last, commands.chain(names(before).into_iter().filter(|name| !before.contains(name))))
}

/// Returns the names of the nodes in the cluster that the flags select.
fn names(before: &[String]) -> Vec<String> {
    let parser = Args::command().no_binary_name(true).ignore_errors(true);
    let Ok(found) = parser.try_get_matches_from(before) else { return Vec::new() };
    let flags = found.subcommand().map_or(&found, |(_, of_command)| of_command);
    let Ok(args) = ClusterArgs::from_arg_matches(flags) else { return Vec::new() };
    let (sender, names) = mpsc::sync_channel(1);
    // A credential program can't be interrupted, but a thread can be abandoned.
    std::thread::spawn(move || sender.send(fetched(&args)));
    names.recv_timeout(TIME_LIMIT).ok().flatten().unwrap_or_default()
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
