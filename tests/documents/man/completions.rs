//! Shell completions, with values where the parser's value names allow it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::{Shell, generate};

/// Returns the completions of a program, for each shell under the file name that the shell looks for.
pub(crate) fn of(program: &Command) -> Vec<(String, String)> {
    let name = program.get_name();
    let written = |(shell, path): (Shell, String)| {
        let mut out = Vec::new();
        generate(shell, &mut with_values(program.clone()), name, &mut out);
        // The generators leave blanks at the ends of some lines.
        let text = String::from_utf8(out).unwrap();
        // The generator for bash replaces a dash in a program's name in two different ways.
        let text = text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"));
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        (format!("completions/{path}"), format!("{}\n", lines.join("\n").trim_end()))
    };
    [
        (Shell::Bash, format!("bash/{name}")),
        (Shell::Fish, format!("fish/{name}.fish")),
        (Shell::Zsh, format!("zsh/_{name}")),
    ]
    .map(written)
    .into()
}

fn with_values(command: Command) -> Command {
    let subcommands: Vec<_> = command.get_subcommands().map(|each| each.get_name().to_owned()).collect();
    let command = command.mut_args(with_value);
    subcommands.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_values))
}

/// Gives the argument a hint or a list of values, by the name of its value.
fn with_value(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() {
        return arg;
    }
    let named = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match named.as_deref().unwrap_or_default() {
        "FILE" | "SOCKET" => arg.value_hint(ValueHint::FilePath),
        "DIR" => arg.value_hint(ValueHint::DirPath),
        "COMMAND" => arg.value_hint(ValueHint::CommandString),
        // The parser needs names with a static lifetime.
        choice if choice.contains('|') => {
            arg.value_parser(PossibleValuesParser::new(choice.to_owned().leak().split('|')))
        }
        _ => arg.value_hint(ValueHint::Other),
    }
}
