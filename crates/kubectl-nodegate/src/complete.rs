//! The words that can follow on a command line, for `kubectl_complete-nodegate`. They come from the parser itself, so that
//! each offered flag is one that it takes; the nodes come from the cluster.

use crate::args::{Args, ClusterArgs};
use crate::cluster::Cluster;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use std::time::Duration;

/// A shell waits for the answer.
const WITHIN: Duration = Duration::from_secs(3);
/// Tells kubectl that files can't follow.
const NO_FILES: &str = ":4";

/// Returns the lines for kubectl: what may stand for the last of the words, and whether files may, too.
pub(crate) async fn run(words: &[String]) -> String {
    // `--flag=value` is as `--flag value`. The shell keeps a flag before `=` itself.
    let parts = |word: &str| if word.starts_with('-') { 2 } else { 1 };
    let words: Vec<&str> = words.iter().flat_map(|word| word.splitn(parts(word), '=')).collect();
    let Some((last, before)) = words.split_last() else { return format!("{NO_FILES}\n") };
    let root = Args::command();
    let typed = root.clone().ignore_errors(true).no_binary_name(true).try_get_matches_from(before).ok();
    let below = typed.as_ref().and_then(ArgMatches::subcommand);
    let command = below.and_then(|(name, _)| root.find_subcommand(name)).unwrap_or(&root);
    let awaits = before.last().and_then(|word| flag(command, word));
    let offered = match awaits {
        Some(flag) => values(flag),
        None if last.starts_with('-') => {
            command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
        }
        None => {
            let nodes = nodes(below.map(|(_, matches)| matches).or(typed.as_ref())).await;
            command.get_subcommands().map(|sub| sub.get_name().to_owned()).chain(nodes).collect()
        }
    };
    let fitting = offered.into_iter().filter(|word| word.starts_with(last));
    let is_file = awaits.is_some_and(|flag| flag.get_id() == "kubeconfig");
    let end = if is_file { ":0" } else { NO_FILES };
    fitting.chain([end.to_owned()]).map(|word| word + "\n").collect()
}

/// Returns the flag that a word names, if a value follows it.
fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut flags =
        command.get_arguments().filter(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set());
    flags.find(|arg| {
        let is_long = arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
        is_long || arg.get_short().is_some_and(|short| name == format!("-{short}"))
    })
}

/// Returns the values that the flag's help lists.
fn values(flag: &Arg) -> Vec<String> {
    let names = flag.get_value_names().unwrap_or_default().iter();
    names.filter(|name| name.contains('|')).flat_map(|name| name.split('|')).map(str::to_owned).collect()
}

/// Returns the names of the nodes of the cluster that the flags name, if it answers in time.
async fn nodes(flags: Option<&ArgMatches>) -> Vec<String> {
    let Some(Ok(cluster)) = flags.map(ClusterArgs::from_arg_matches) else { return Vec::new() };
    let listed = async { Cluster::connect(&cluster).await?.nodes(&[], None).await };
    match tokio::time::timeout(WITHIN, listed).await {
        Ok(Ok(nodes)) => nodes.into_iter().map(|node| node.name).collect(),
        _ => Vec::new(),
    }
}
