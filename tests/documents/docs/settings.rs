//! The tables of settings equal the programs' `--help`, with one row for each setting.

use super::pages::read;
use nodegate_testbed::agent::run;
use std::ffi::OsStr;

/// A setting as `--help` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    flag: String,
    env: String,
    default: String,
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split_once(end).map(|(inside, _)| inside)
}

/// Reads clap's long help: a line with the flag, and later `[env: NAME=]` and `[default: …]`, perhaps
/// wrapped.
fn settings_of_help() -> Vec<Setting> {
    let output = run(&["--help"], &[]);
    let help = String::from_utf8(output.stdout).unwrap();
    let options = between(&help, "Options:\n", "\nPATHS").unwrap();
    let blocks = options
        .split("\n      --")
        .flat_map(|block| block.split("\n  -"))
        .filter(|block| block.contains("[env"));
    let setting = |block: &str| {
        let flag = block.trim_start().trim_start_matches("--").split([' ', '\n']).next().unwrap();
        let env = between(block, "[env: ", "]").unwrap().trim_end_matches('=').to_owned();
        // A wrapped list has lost nothing but its line breaks.
        let default = between(block, "[default:", "]").unwrap_or_default();
        let default = default.split_whitespace().collect::<Vec<_>>().join("");
        Setting { flag: format!("--{flag}"), env, default }
    };
    blocks.map(setting).collect()
}

/// Returns the settings of another program from its parser, because the program is built elsewhere.
fn settings_of(program: &clap::Command) -> Vec<Setting> {
    let setting = |arg: &clap::Arg| {
        let takes_value = arg.get_action().takes_values();
        let default = arg.get_default_values().iter().filter(|_| takes_value);
        Setting {
            flag: format!("--{}", arg.get_long().unwrap()),
            env: arg.get_env().and_then(OsStr::to_str).unwrap_or_default().to_owned(),
            default: default.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(","),
        }
    };
    program.get_arguments().map(setting).collect()
}

fn settings_of_document(path: &str) -> Vec<Setting> {
    let document = read(path);
    let table = between(&document, "<!-- settings", "<!-- /settings -->").unwrap().to_owned();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cell = |text: &str| text.trim().trim_matches('`').to_owned();
    rows.map(|row| {
        let cells: Vec<String> = row.trim_matches('|').split('|').map(cell).collect();
        assert!(!cells[3].is_empty(), "{row}: no meaning");
        Setting { flag: cells[0].clone(), env: cells[1].clone(), default: cells[2].clone() }
    })
    .collect()
}

#[test]
fn the_table_of_the_agents_settings_equals_its_help() {
    let help = settings_of_help();
    assert!(help.len() >= 10, "--help was not understood: {help:#?}");
    assert_eq!(settings_of_document("docs/configuration.md"), help);
}

#[test]
fn the_table_of_nodegate_haproxys_settings_equals_its_parser() {
    let parser = settings_of(&nodegate_haproxy::run::command());
    assert!(parser.len() >= 10, "the parser was not understood: {parser:#?}");
    assert_eq!(settings_of_document("docs/nodegate-haproxy.md"), parser);
}

#[test]
fn so_is_the_gates() {
    let parser = settings_of(&nodegate_eviction_gate::run::command());
    assert!(parser.len() >= 10, "the parser was not understood: {parser:#?}");
    assert_eq!(settings_of_document("docs/eviction-gate.md"), parser);
}
