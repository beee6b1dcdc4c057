//! Every right that the manifests give, with its account: no more than each program needs.

use super::support::{Json, manifest};
use serde_json::Value;
use std::fmt::Write as _;

/// Each rule of each role, and each binding. The rights of the gate are also those of its tests
/// (`crates/eviction-gate/tests/gate/scenario.rs`).
const RIGHTS: &str = include_str!("rights.txt");

const FILES: [&str; 7] = [
    "install",
    "eviction-gate",
    "haproxy",
    "publish-status",
    "services",
    "plugin-users",
    "static-pod-rights",
];

fn words(value: &Value, key: &str) -> String {
    let words = value[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(",")
}

#[test]
fn the_manifests_give_these_rights_and_no_others() {
    let mut found = String::new();
    for file in FILES {
        for object in manifest(file).0 {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let namespace = text("/metadata/namespace");
            for rule in object.every("/rules") {
                let what = ["verbs", "resources", "resourceNames"].map(|key| words(rule, key)).join(" ");
                writeln!(found, "{file}: {namespace}/{}: {}", text("/metadata/name"), what.trim_end())
                    .unwrap();
            }
            for subject in object.every("/subjects") {
                let of = |key: &str| subject[key].as_str().unwrap_or_default();
                let role = text("/roleRef/name");
                writeln!(found, "{file}: {}/{} has {namespace}/{role}", of("namespace"), of("name")).unwrap();
            }
        }
    }
    assert_eq!(found, RIGHTS);
}
