//! The chart's README has a table of all values, made from values.yaml. `make generate WHAT=chart` writes it.

use super::{chart, read};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;

const START: &str = "<!-- values: made from values.yaml by `make generate WHAT=chart` -->\n";
const END: &str = "<!-- /values -->\n";

/// A key of values.yaml, with the comment above it.
struct Key {
    path: Vec<String>,
    comment: String,
}

/// Returns the keys in their order. A comment belongs to the key below it, and an empty line ends it.
fn keys(yaml: &str) -> Vec<Key> {
    let (mut keys, mut path, mut comment) = (Vec::new(), Vec::<(usize, String)>::new(), String::new());
    for line in yaml.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(more) = text.strip_prefix("# ") {
            comment = if comment.is_empty() { more.to_owned() } else { format!("{comment} {more}") };
        } else if let Some((name, _)) = text.split_once(':').filter(|_| !text.starts_with('-')) {
            path.retain(|(at, _)| *at < indent);
            path.push((indent, name.to_owned()));
            let path = path.iter().map(|(_, name)| name.clone()).collect();
            keys.push(Key { path, comment: std::mem::take(&mut comment) });
        } else {
            comment.clear();
        }
    }
    keys
}

fn table() -> String {
    let yaml = read("values.yaml");
    let values: Value = serde_saphyr::from_str(&yaml).unwrap();
    let keys = keys(&yaml);
    let explained = |key: &&Key| !key.comment.is_empty();
    let mut rows = "| value | default | meaning |\n|---|---|---|\n".to_owned();
    for key in keys.iter().filter(explained) {
        let above = |other: &&Key| other.path.len() > key.path.len() && other.path.starts_with(&key.path);
        let group = keys.iter().filter(above).any(|below| !below.comment.is_empty());
        let default = key.path.iter().fold(&values, |value, name| &value[name]);
        let default = if group { String::new() } else { format!("`{default}`") };
        let meaning = key.comment.replace('|', "\\|");
        writeln!(rows, "| `{}` | {default} | {meaning} |", key.path.join(".")).unwrap();
    }
    // No key is missing: a key without a comment belongs to one with a comment, or has parts with comments.
    for key in keys.iter().filter(|key| !explained(key)) {
        let related = |other: &&Key| other.path.starts_with(&key.path) || key.path.starts_with(&other.path);
        assert!(keys.iter().filter(explained).any(|other| related(&other)), "{:?} has no comment", key.path);
    }
    rows
}

fn with_table(readme: &str) -> String {
    let (before, rest) = readme.split_once(START).expect("the README has a place for the table");
    let (_, after) = rest.split_once(END).expect("the table ends");
    format!("{before}{START}{}{END}{after}", table())
}

#[test]
fn the_charts_readme_has_the_table_of_values_yaml() {
    let readme = read("README.md");
    assert!(
        readme == with_table(&readme),
        "run `make generate WHAT=chart`: charts/nodegate/README.md is not what values.yaml says"
    );
}

#[test]
#[ignore = "writes the files: make generate WHAT=chart"]
fn write() {
    let readme = with_table(&read("README.md"));
    fs::write(format!("{}/README.md", chart()), readme).unwrap();
    fs::write(format!("{}/files/settings.json", chart()), super::settings::file()).unwrap();
    println!("charts/nodegate/README.md\ncharts/nodegate/files/settings.json");
}
