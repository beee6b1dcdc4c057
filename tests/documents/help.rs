//! The programs' own help, on a terminal of 80 columns.

use nodegate_testbed::programs::{self, must_run};
use std::path::Path;
use std::process::Command;

/// The most lines of `-h`.
const SCREEN: usize = 50;

fn help(program: &Path, words: &[&str]) -> Vec<String> {
    let help = must_run(Command::new(program).args(words).env_clear());
    help.lines().map(str::to_owned).collect()
}

#[test]
fn each_text_fits_80_columns_and_the_short_one_a_screen() {
    let programs = [
        (programs::agent(), &["", "status", "wait"][..]),
        (programs::eviction_gate(), &[""]),
        (programs::nodegate_haproxy(), &[""]),
        (programs::nodegate_shutdown(), &["", "status"]),
        (programs::kubectl_nodegate(), &["", "drain", "uncordon", "wait"]),
    ];
    for (program, commands) in programs {
        for command in commands {
            let of = |flag| {
                let words = [*command, flag];
                help(&program, if command.is_empty() { &words[1..] } else { &words })
            };
            let [short, long] = [of("-h"), of("--help")];
            let what = format!("{} {command}", program.display());
            let wide = [&short, &long].into_iter().flatten().find(|line| line.chars().count() > 79);
            assert_eq!(wide, None, "{what}");
            assert!(short.len() <= SCREEN && short.len() < long.len(), "{what}: {}", short.join("\n"));
        }
    }
}
