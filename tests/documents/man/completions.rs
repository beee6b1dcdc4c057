//! Shell completions.

use clap::Command;
use clap_complete::{Shell, generate};

/// Returns the completions of a program, for each shell under the file name that the shell looks for.
pub(crate) fn of(program: &Command) -> Vec<(String, String)> {
    let name = program.get_name();
    let written = |(shell, path): (Shell, String)| {
        let mut out = Vec::new();
        generate(shell, &mut program.clone(), name, &mut out);
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
