//! The man pages and the shells' completions in `packaging/` are what the programs' own argument parsers say. `make man`
//! writes them anew.

mod completions;
mod pages;

use crate::agent_args;
use clap::{Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging");

/// The programs' parsers.
fn programs() -> [Command; 3] {
    [agent_args::Args::command(), nodegate_haproxy_sync::run::command(), nodegate_kubectl::command()]
}

/// Every file that is generated, by its path in `packaging/`.
fn generated() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for program in programs() {
        files.extend(pages::of(&program));
        files.extend(completions::of(&program));
    }
    files
}

/// The files that lie there.
fn there() -> BTreeSet<String> {
    let directories = ["man", "completions/bash", "completions/fish", "completions/zsh"];
    let names = directories.into_iter().flat_map(|directory| {
        let entries = fs::read_dir(format!("{PACKAGING}/{directory}")).into_iter().flatten();
        entries.map(move |entry| format!("{directory}/{}", entry.unwrap().file_name().to_str().unwrap()))
    });
    names.collect()
}

#[test]
fn they_say_what_the_parsers_say() {
    let files = generated();
    let stale = |(name, text): &(&String, &String)| {
        fs::read_to_string(format!("{PACKAGING}/{name}")).ok().as_ref() != Some(*text)
    };
    let stale: Vec<_> = files.iter().filter(stale).map(|(name, _)| name).collect();
    assert!(stale.is_empty(), "run `make man`: these are not what the argument parsers say: {stale:?}");
    let unknown: Vec<_> = there().into_iter().filter(|name| !files.contains_key(name)).collect();
    assert!(unknown.is_empty(), "nobody generates these: {unknown:?}");
}

#[test]
#[ignore = "writes the files: make man"]
fn write() {
    for (name, text) in generated() {
        let path = Path::new(PACKAGING).join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        println!("packaging/{name}");
    }
}
