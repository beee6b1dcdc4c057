//! manifests/haproxy.yaml: a restricted Pod with HAProxy and nodegate-haproxy, with no more than they need.

use super::support::{Json, Manifests, manifest};
use serde_json::json;
use std::collections::BTreeSet;

fn manifests() -> Manifests {
    manifest("haproxy")
}

#[test]
fn the_rights_to_write_are_an_addition_of_their_own() {
    let with = manifest("publish-status");
    let writes = |manifests: &Manifests| {
        let roles =
            manifests.0.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
        let rules = roles.flat_map(|role| role.every("/rules").to_vec());
        let reads = |verb: &serde_json::Value| ["get", "list", "watch"].contains(&verb.as_str().unwrap());
        let writes = rules.filter(|rule| !rule.every("/verbs").iter().all(reads));
        writes.map(|rule| format!("{} {}", rule["verbs"], rule["resources"])).collect::<Vec<_>>()
    };
    assert_eq!(writes(&manifests()), Vec::<String>::new());
    let allowed = [
        r#"["patch"] ["services/status"]"#,
        r#"["create"] ["events"]"#,
        r#"["create"] ["leases"]"#,
        r#"["get","patch"] ["leases"]"#,
    ];
    let (found, allowed): (BTreeSet<_>, BTreeSet<_>) =
        (writes(&with).into_iter().collect(), allowed.map(str::to_owned).into_iter().collect());
    assert_eq!(found, allowed);
    assert_eq!(
        with.the("Role", "nodegate-haproxy-lease").at("/rules/1/resourceNames"),
        &json!(["nodegate-haproxy"])
    );
}
