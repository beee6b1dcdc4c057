//! Every right that the manifests give, with its account: no more than each program needs.

use super::support::{Json, manifest};
use serde_json::Value;
use std::fmt::Write as _;

/// Each rule of each role, and each binding. The rights of the gate are also those of its tests
/// (`crates/eviction-gate/tests/gate/lab.rs`).
const RIGHTS: &str = "
install: /nodegate: get,list,watch nodes
install: nodegate/nodegate has /nodegate
install: kube-node-lease/nodegate: list,watch leases
install: nodegate/nodegate has kube-node-lease/nodegate
eviction-gate: /nodegate-eviction-gate: get pods,nodes,namespaces
eviction-gate: /nodegate-eviction-gate: create events
eviction-gate: /nodegate-eviction-gate: get,patch validatingwebhookconfigurations nodegate-eviction-gate
eviction-gate: nodegate/nodegate-eviction-gate has /nodegate-eviction-gate
eviction-gate: nodegate/nodegate-eviction-gate: get,update secrets nodegate-eviction-gate
eviction-gate: nodegate/nodegate-eviction-gate: create pods/eviction
eviction-gate: nodegate/nodegate-eviction-gate has nodegate/nodegate-eviction-gate
haproxy: /nodegate-haproxy: get,list,watch nodes,services
haproxy: nodegate/nodegate-haproxy has /nodegate-haproxy
publish-status: /nodegate-haproxy-status: patch services/status
publish-status: /nodegate-haproxy-status: create events
publish-status: nodegate/nodegate-haproxy has /nodegate-haproxy-status
services: /nodegate-services: list,watch endpointslices
services: nodegate/nodegate has /nodegate-services
plugin-users: /nodegate-plugin: get,list nodes
plugin-users: /nodegate-plugin: list validatingwebhookconfigurations
plugin-users: /nodegate-plugin: list services
plugin-users: nodegate/nodegate-plugin: list pods
plugin-users: nodegate/nodegate-plugin: get pods/proxy
static-pod-rights: /nodegate-static has /nodegate
static-pod-rights: /nodegate-static has kube-node-lease/nodegate
";

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
    let mut found = "\n".to_owned();
    for file in FILES {
        for object in manifest(file).0 {
            let text = |pointer: &str| {
                object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
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
