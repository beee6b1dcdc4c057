//! Turns the command line and the environment into a program's settings, for `run`.

use crate::mistakes::Mistakes;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Parser, value_parser};
use std::error::Error;
use std::ffi::OsString;

/// Joins the lines of clap's message, and adds what it takes where clap does not say it. The line after a colon is
/// what the message names.
pub(crate) fn one_line(error: &clap::Error, command: &Command) -> String {
    let text = error.to_string();
    let end = match error.kind() {
        ErrorKind::UnknownArgument if !text.contains("a similar argument exists") => {
            "; leave it out: --help lists all".to_owned()
        }
        ErrorKind::MissingRequiredArgument => {
            let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
            usage.map_or(String::new(), |usage| format!("; usage: {usage}"))
        }
        ErrorKind::InvalidSubcommand => {
            let names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
            format!("; the commands: {}", names.join(", "))
        }
        _ => String::new(),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    // Behind `--`, programs take no flags as values.
    let telling = telling.filter(|line| !line.starts_with("tip: to pass "));
    telling.collect::<Vec<_>>().join("; ").replace(":; ", ": ").replacen("error: ", "", 1) + &end
}

/// Parses a program's settings. A wrong value has its default in the result, so that the caller can check the others before
/// it reports all mistakes. An empty variable counts as not set; so does an empty value of an option that has no default.
///
/// clap stops at the first wrong value. So this parses all values as text first, then tries each one, and finally parses those
/// that pass.
pub(crate) fn parse<P: Parser>(
    command: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<(P, Mistakes), clap::Error> {
    let as_text = |arg: Arg| {
        if arg.get_action().takes_values() { arg.value_parser(value_parser!(String)) } else { arg }
    };
    let texts = each_argument(command.clone(), as_text).try_get_matches_from(words)?;
    let mut sound = vec![command.get_name().to_owned()];
    let (asked, texts) = match texts.subcommand() {
        Some((name, below)) => {
            sound.push(name.to_owned());
            (command.find_subcommand(name).unwrap_or(command), below)
        }
        None => (command, &texts),
    };
    let mut mistakes = Mistakes::new(asked.clone());
    let mut typed = each_argument(command.clone(), |arg| arg.env(None::<&str>));
    let (behind, before): (Vec<_>, Vec<_>) = asked.get_arguments().partition(|arg| arg.is_positional());
    for (arg, text) in before.into_iter().flat_map(|arg| given(arg, texts).map(move |text| (arg, text))) {
        let flag = arg.get_long().unwrap_or_default();
        let takes_value = arg.get_action().takes_values();
        sound.push(if takes_value { format!("--{flag}={text}") } else { format!("--{flag}") });
        let Err(error) = typed.try_get_matches_from_mut(&sound) else { continue };
        if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
            let takes = error.source().map_or_else(|| one_line(&error, command), ToString::to_string);
            mistakes.value(flag, text, takes);
            sound.pop();
        }
    }
    if !behind.is_empty() {
        sound.push("--".to_owned());
        sound.extend(behind.into_iter().flat_map(|arg| given(arg, texts)).map(str::to_owned));
    }
    let matches = typed.try_get_matches_from(sound)?;
    Ok((P::from_arg_matches(&matches)?, mistakes))
}

fn each_argument(command: Command, change: fn(Arg) -> Arg) -> Command {
    command.mut_args(change).mut_subcommands(|below| each_argument(below, change))
}

/// Returns the given values of a setting; a list may have spaces between its values, and a separator at its
/// end.
fn given<'a>(arg: &Arg, texts: &'a ArgMatches) -> impl Iterator<Item = &'a str> + use<'a> {
    let id = arg.get_id().as_str();
    let source = texts.value_source(id);
    let by_variable = source == Some(ValueSource::EnvVariable);
    let is_given = by_variable || source == Some(ValueSource::CommandLine);
    let (is_list, may_be_empty) =
        (arg.get_value_delimiter().is_some(), !by_variable && !arg.get_default_values().is_empty());
    let values = is_given.then(|| texts.get_raw(id)).flatten().into_iter().flatten();
    let values = values.filter_map(|value| value.to_str());
    let values = values.map(move |value| if is_list { value.trim() } else { value });
    values.filter(move |value| may_be_empty || !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogSettings, duration, number};
    use clap::CommandFactory;
    use std::time::Duration;

    #[derive(Debug, Parser)]
    #[command(name = "program", version, args_conflicts_with_subcommands = true)]
    struct Args {
        #[command(subcommand)]
        command: Option<Below>,
        #[arg(long, env = "CARGO_NO_SUCH_VARIABLE", default_value = "15s", value_parser = duration(Duration::ZERO..=Duration::from_mins(1)))]
        wait: Duration,
        /// Of the test's own package, and so no number
        #[arg(long, env = "CARGO_PKG_NAME", default_value = "7", value_parser = number(0..=9_u8, "takes 0 to 9"))]
        count: u8,
        #[arg(long, value_parser = number(1..=9_u8, "takes 1 to 9"))]
        times: Option<u8>,
        #[arg(long, value_delimiter = ';', value_parser = number(1..=9_u8, "takes 1 to 9"))]
        each: Vec<u8>,
        #[arg(long)]
        dry: bool,
        #[command(flatten)]
        log: LogSettings,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Below {
        Ask {
            #[arg(long, default_value = "2", value_parser = number(1..=9_u8, "takes 1 to 9"))]
            count: u8,
        },
        Take {
            names: Vec<String>,
            #[arg(long, default_value = "2", value_parser = number(1..=9_u8, "takes 1 to 9"))]
            count: u8,
        },
    }

    fn read(line: &str) -> (Args, Vec<String>) {
        let words = std::iter::once("program").chain(line.split(' ').filter(|word| !word.is_empty()));
        let (args, mistakes) = parse(&Args::command(), words.map(OsString::from)).unwrap();
        (args, mistakes.lines)
    }

    #[test]
    fn every_mistake_is_named_and_leaves_the_default() {
        let (args, lines) = read("--wait=2m --times 0 --dry --each=1;0;x --log loud");
        assert_eq!(
            lines,
            [
                r#"--wait (CARGO_NO_SUCH_VARIABLE) "2m": takes a duration from 0s to 1m, with its unit: ms, s, m or h"#,
                r#"--count (CARGO_PKG_NAME) "nodegate-program": takes 0 to 9"#,
                r#"--times "0": takes 1 to 9"#,
                r#"--each "0": takes 1 to 9"#,
                r#"--each "x": takes 1 to 9"#,
                r#"--log (RUST_LOG) "loud": takes a level (error, warn, info, debug, trace, off) or target=level,…"#,
            ]
        );
        assert_eq!((args.wait, args.count, args.times), (Duration::from_secs(15), 7, None));
        assert_eq!((args.each, args.dry), (vec![1], true));
    }

    #[test]
    fn what_was_given_is_what_comes_back() {
        let (args, lines) = read("--wait 3s --count 0 --each 1;2 --each 3; --times 9");
        assert_eq!(lines, [""; 0]);
        assert_eq!((args.wait, args.count, args.times), (Duration::from_secs(3), 0, Some(9)));
        assert_eq!((args.each, args.dry), (vec![1, 2, 3], false));
        assert!(args.command.is_none());
    }

    #[test]
    fn an_empty_value_is_none_where_there_is_no_default() {
        let (args, lines) = read("--count=1 --times= --each=");
        assert_eq!((args.times, args.each, lines), (None, vec![], vec![]));
        assert_eq!(read("--count=").1, [r#"--count (CARGO_PKG_NAME) "": takes 0 to 9"#]);
    }

    /// A command that queries the program has the program's environment.
    #[test]
    fn a_command_has_settings_of_its_own() {
        let (args, lines) = read("ask --count 3");
        assert!(matches!(args.command, Some(Below::Ask { count: 3 })), "{:?}", args.command);
        assert_eq!(lines, [""; 0]);
        assert_eq!(read("ask --count 0").1, [r#"--count "0": takes 1 to 9"#]);
    }

    /// What is behind two dashes is no flag, whatever it looks like.
    #[test]
    fn a_command_takes_names_and_what_is_behind_two_dashes() {
        let (args, lines) = read("take a --count 0 b -- --count=7 -x c");
        let Some(Below::Take { names, count: 2 }) = args.command else { panic!("{:?}", args.command) };
        assert_eq!(names, ["a", "b", "--count=7", "-x", "c"]);
        assert_eq!(lines, [r#"--count "0": takes 1 to 9"#]);
    }
}
