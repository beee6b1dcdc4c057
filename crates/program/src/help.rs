//! The texts of `-h` and `--help`.

use clap::{Arg, Command};

/// Neither text is wider than this, which leaves a terminal of 80 columns a margin.
const WIDTH: usize = 78;

/// Returns the command with its texts for a terminal. `-h` is a screen: it has only the settings of this list (those
/// without a heading if it is empty), each with its first sentence.
pub(crate) fn for_terminal(command: Command, usual: &[&str], is_short: bool) -> Command {
    let command = command.term_width(WIDTH).mut_args(|arg| {
        let is_usual = match usual {
            [] => arg.get_help_heading().is_none(),
            _ => usual.contains(&arg.get_id().as_str()),
        };
        let is_general = arg.get_long().is_some_and(|name| matches!(name, "help" | "version"));
        with_sentences(arg).hide_env(is_short).hide_short_help(!is_general && !is_usual)
    });
    command.mut_subcommands(|below| for_terminal(below, &[], is_short))
}

/// Gives `-h` the first sentence, and breaks the default list of `--help`, which has no blanks.
fn with_sentences(arg: Arg) -> Arg {
    let Some(text) = arg.get_long_help().or(arg.get_help()).map(ToString::to_string) else { return arg };
    let end = [". ", ": ", "; "].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let sentence = text.get(..end).unwrap_or(&text).to_owned();
    let default: Vec<_> = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    let list = default.join(",");
    if !list.contains(',') {
        return arg.help(sentence).long_help(text);
    }
    let items = list.replace(',', ", ");
    arg.hide_default_value(true).help(sentence).long_help(format!("{text}; the default is {items}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    /// A program
    #[derive(Parser)]
    struct Args {
        /// The usual setting, which all need: as often as they want, and with a second line of text behind it
        #[arg(
            long,
            env = "CARGO_NO_SUCH_VARIABLE",
            default_value = "a,bbbbbbbbbbbbbbbbbbbbbbbbbbb,cccccccccccccccccccccc,dddddddd"
        )]
        usual: String,
        /// A setting that few need
        #[arg(long)]
        rare: bool,
    }

    #[test]
    fn a_short_text_has_the_usual_settings_and_none_is_wide() {
        let text = |is_short| {
            let mut command = for_terminal(Args::command(), &["usual"], is_short);
            let text = if is_short { command.render_help() } else { command.render_long_help() };
            text.to_string()
        };
        let [short, long] = [true, false].map(text);
        let is_usual = short.contains("The usual setting, which all need\n") && !short.contains("--rare");
        assert!(is_usual, "{short}");
        assert!(long.contains("--rare") && long.contains("CARGO_NO_SUCH_VARIABLE"), "{long}");
        let unbroken = long.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unbroken.contains("the default is a, bbbbbbbbbbbbbbbbbbbbbbbbbbb, "), "{long}");
        let widest = [&short, &long].into_iter().flat_map(|text| text.lines()).map(str::len).max();
        assert!(widest <= Some(WIDTH), "{long}");
    }
}
