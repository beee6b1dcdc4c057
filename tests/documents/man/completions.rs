//! Shell completions, with values where the parser's value names allow it.

use super::{programs, write_to};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::{Shell, generate};
use std::path::Path;
use std::process;

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

/// Returns bash's completions of the last of these words, from the function that it would call.
fn offered(directory: &Path, words: &[&str]) -> Vec<String> {
    let program = words[0];
    let script = format!(
        r#"set -eu
        source '{}/completions/bash/{program}'
        [[ $(complete -p {program}) =~ -F\ ([^ ]+) ]]
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "${{BASH_REMATCH[1]}}" {program} "${{@: -1}}" "${{@: -2:1}}"
        printf '%s\n' "${{COMPREPLY[@]}}""#,
        directory.display()
    );
    let mut bash = process::Command::new("bash");
    let output = bash.args(["--norc", "-c", &script, "bash"]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_flags_commands_and_values() {
    let directory = tempfile::tempdir().unwrap();
    write_to(directory.path());
    let offered = |words: &[&str]| offered(directory.path(), words);
    for (words, offers) in [
        (&["nodegate", "--on-s"][..], &["--on-stale"][..]),
        (&["nodegate", "st"], &["status"]),
        (&["nodegate", "--on-stale", ""], &["ready", "keep-drain", "not-ready"]),
        (&["nodegate", "--log-format", "j"], &["json"]),
        (&["nodegate", "status", "--t"], &["--timeout"]),
        (&["nodegate", "status", "-o", ""], &["text", "json"]),
        (&["kubectl-nodegate", "dr"], &["drain"]),
        (&["kubectl-nodegate", "wait", "--for", ""], &["told", "released", "ready"]),
        (&["nodegate-haproxy", "--master"], &["--master-socket"]),
    ] {
        assert_eq!(offered(words), offers, "{words:?}");
    }
    for program in programs() {
        let all = offered(&[program.get_name(), "--"]);
        for flag in program.get_arguments().filter_map(Arg::get_long) {
            assert!(all.contains(&format!("--{flag}")), "{flag} is not among {all:?}");
        }
    }
}
