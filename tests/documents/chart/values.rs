//! Helm rejects wrong values with a message, and the others work as values.yaml describes.

use super::{template, template_as, with};
use crate::docs::pages;
use crate::manifests::{Json, Manifests};
use serde_json::{Value, json};

const REFUSED: &str = include_str!("refused.txt");
/// Values, and below each what the chart makes of them.
const RENDERED: &str = include_str!("rendered.txt");

#[test]
fn wrong_values_of_the_chart_are_rejected_with_a_message() {
    for row in REFUSED.trim().lines() {
        let (values, why) = row.split_once(" => ").unwrap();
        let values: Value = serde_json::from_str(values).unwrap();
        let said = template(&values).err().unwrap_or_else(|| panic!("{values} is taken"));
        assert!(said.contains(why), "{values}: {said}");
    }
}

#[test]
fn the_chart_does_what_its_values_say() {
    let mut manifests = Manifests(Vec::new());
    for line in RENDERED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(row) = line.strip_prefix("  ") else {
            manifests = template(&serde_json::from_str(line).unwrap()).unwrap();
            continue;
        };
        let (what, expected) = row.split_once(" = ").unwrap();
        let found = match what.split(' ').collect::<Vec<_>>()[..] {
            [part] => {
                let mut names = manifests.names();
                names.retain(|name| name.contains(part));
                names.sort();
                json!(names)
            }
            [kind, name, pointer] => {
                let object = with_variables(manifests.the(kind, name).clone());
                object.pointer(pointer).cloned().unwrap_or_default()
            }
            _ => panic!("{row}"),
        };
        assert_eq!(found, serde_json::from_str::<Value>(expected).unwrap(), "{what}");
    }
}

/// Returns an object with the variables of its containers by their names.
fn with_variables(mut object: Value) -> Value {
    let containers = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        let variables = container.every("/env").iter();
        let named = |each: &Value| (each["name"].as_str().unwrap().to_owned(), each["value"].clone());
        let env: Value = variables.map(named).collect();
        container["env"] = env;
    }
    object
}

/// Renders every kind of object. Shows, too, that a second release of the chart has names of its own.
#[test]
fn names_follow_the_release_or_its_overrides() {
    let everything = json!({
        "createNamespace": true, "prometheus": {"enabled": true}, "settings": {"watchService": ["a/x"]},
        "services": {"rbac": "cluster"}, "haproxy": {"enabled": true, "settings": {"publishStatus": ["203.0.113.10"]}},
        "pluginUsers": {"enabled": true}, "evictionGate": {"enabled": true}, "flowSchema": {"enabled": true},
        "staticPods": {"rights": true},
    });
    for (release, values, name) in [
        ("nodegate", json!({}), "nodegate"),
        ("edge", json!({}), "edge-nodegate"),
        ("edge", json!({"nameOverride": "ready"}), "edge-ready"),
        ("my-ready", json!({"nameOverride": "ready"}), "my-ready"),
        ("edge", json!({"fullnameOverride": "lb"}), "lb"),
    ] {
        let rendered = template_as(release, "shop", &with(everything.clone(), &values)).unwrap();
        let labels = rendered.the("DaemonSet", name).at("/spec/template/metadata/labels");
        assert_eq!(labels["app.kubernetes.io/name"], "nodegate", "alerts and kubectl nodegate know it");
        for found in rendered.names() {
            let found = found.split_once('/').unwrap().1;
            assert!(found == "shop" || found.starts_with(name), "{found}");
        }
    }
}

#[test]
fn the_chart_accepts_all_values_in_the_documents() {
    let mut found = 0;
    for block in pages::all().into_iter().flat_map(|page| page.blocks) {
        if block.language == "yaml" && block.body.lines().any(|line| matches!(line, "settings:" | "image:")) {
            let digest = format!("sha256:{}", "7".repeat(64));
            let values: Value = serde_saphyr::from_str(&block.body.replace("sha256:…", &digest)).unwrap();
            template(&values).unwrap_or_else(|error| panic!("{}: {error}", block.body));
            found += 1;
        }
    }
    assert!(found >= 4, "only {found} were found");
}
