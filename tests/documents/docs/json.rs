//! docs/json.md has every key of `/status.json`, `/drain.json` and `/wait` with its JSON type, and no other: a
//! document with every key of a table is read as the program's own type, which loses none and leaves none out.

use super::pages::read;
use nodegate_agent_api::{DrainSummary, Status, WaitReply};
use nodegate_readiness::NodeFacts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The JSON type of each key by its path, such as `checks[].name`.
type Keys = BTreeMap<String, String>;

/// Reads the table below a heading. A row has one type for all its keys, or one for each.
fn documented(page: &str, heading: &str) -> Keys {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading)).unwrap();
    let mut keys = Keys::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let names = cells[1].split(", ").map(|name| name.trim_matches('`'));
        let types: Vec<_> = cells[2].split(", ").collect();
        for (name, kind) in names.zip(types.iter().cycle()) {
            assert!(!cells[3].is_empty(), "{name}: no meaning");
            assert!(keys.insert(name.to_owned(), (*kind).to_owned()).is_none(), "{name} has two rows");
        }
    }
    keys
}

/// Returns a document that has each key, with a value that is not the default of its type.
fn document(page: &str, heading: &str) -> Value {
    let keys = documented(page, heading);
    let mut document = json!({});
    for (path, kind) in &keys {
        let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
        let has_keys = |below: &str| keys.keys().any(|other| other.starts_with(&format!("{path}{below}")));
        let value = match (key, kind.as_str()) {
            ("verdict" | "from" | "to" | "goal", "string") => "ready".into(),
            ("standing", "string") => "regular".into(),
            ("state", "string") => "reached".into(),
            ("status", "string") => "True".into(),
            ("internal_ips", "list") => json!(["127.0.0.1"]),
            ("ports", "list") => json!([1]),
            (_, "string") => "x".into(),
            (_, "number") => 1.into(),
            (_, "boolean") => true.into(),
            (_, "list") if has_keys("[].") => json!([{}]),
            (_, "list") => json!(["x"]),
            (_, "object") if has_keys(".") => json!({}),
            (_, "object") => json!({"x": "x"}),
            _ => panic!("{path}: {kind} is no type"),
        };
        let above = above.split('.').filter(|name| !name.is_empty()).map(|name| format!("/{name}"));
        let above = above.collect::<String>().replace("[]", "/0");
        document.pointer_mut(&above).unwrap_or_else(|| panic!("{path}: no row above it"))[key] = value;
    }
    document
}

fn parse<T: DeserializeOwned>(document: &Value) -> T {
    serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{error}: {document:#}"))
}

/// Asserts that a value that was read from the document has all of its keys, and no field without a value.
fn has_every_key(value: &(impl Serialize + Debug), document: &Value) {
    assert_eq!(
        &serde_json::to_value(value).unwrap(),
        document,
        "the program has no such key, or another type"
    );
    let fields = format!("{value:#?}");
    // A reason is written as text, whatever its fields are.
    let is_empty = |line: &&str| {
        let empty = [": None,", ": false,", ": [],", ": {},", ": \"\","];
        !line.ends_with(" counts: false,") && empty.iter().any(|value| line.ends_with(value))
    };
    assert_eq!(fields.lines().find(is_empty), None, "a key that the page has not: {fields}");
}

#[test]
fn the_tables_have_every_key_of_the_json_with_its_type() {
    let page = read("docs/json.md");
    let mut document_of_status = document(&page, "/status.json");
    document_of_status["facts"]["kept"] = document_of_status["kept"].clone();
    document_of_status["services"][0]["drain"] = document_of_status["drain"].clone();
    let mut status: Status = parse(&document_of_status);
    // It hands these on, and reads them itself after other checks; two fields stay with this agent.
    let facts: NodeFacts = parse(&document_of_status["facts"]);
    status.facts = Some(NodeFacts { uid: Some("x".to_owned()), pod_cidrs: vec!["x".to_owned()], ..facts });
    has_every_key(&status, &document_of_status);

    let mut summary = document(&page, "/drain.json");
    for (key, value) in ["kept", "host"].map(|key| (key, &document_of_status[key])) {
        summary[key] = value.clone();
    }
    summary["settings"] = document_of_status["drain"]["settings"].clone();
    has_every_key(&parse::<DrainSummary>(&summary), &summary);

    let mut reply = document(&page, "/wait?format=json");
    reply["drain"] = summary;
    reply["probers"] = document_of_status["probers"].clone();
    has_every_key(&parse::<WaitReply>(&reply), &reply);
}
