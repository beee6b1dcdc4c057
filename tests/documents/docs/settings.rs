//! The tables of settings equal the programs' parsers, with one row for each setting.

use super::pages::read;
use clap::CommandFactory;
use std::ffi::OsStr;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    flag: String,
    pub(crate) env: String,
    pub(crate) default: String,
}

pub(crate) fn settings_of(program: &clap::Command) -> Vec<Setting> {
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
    let (_, table) = document.split_once("<!-- settings").unwrap();
    let (table, _) = table.split_once("<!-- /settings -->").unwrap();
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
fn the_tables_of_settings_equal_the_programs_parsers() {
    for (page, program) in [
        ("docs/configuration.md", nodegate_agent::Args::command()),
        ("docs/nodegate-haproxy.md", nodegate_haproxy::Args::command()),
        ("docs/eviction-gate.md", nodegate_eviction_gate::Args::command()),
    ] {
        let parser = settings_of(&program);
        assert!(parser.len() >= 10, "the parser was not understood: {parser:#?}");
        assert_eq!(settings_of_document(page), parser, "{page}");
    }
}
