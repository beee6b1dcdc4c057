//! `EndpointSlices` from any JSON: dropping the endpoints of other nodes changes nothing, and the count
//! equals that of an independent parser.
#![no_main]

use nodegate_node_watch::fuzzing;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    let Ok([count, trimmed]) = fuzzing::slice(json, "n1") else { return };
    assert_eq!(count, trimmed);
    if let Some(expected) = serde_json::from_slice(json).ok().and_then(|value| oracle(&value)) {
        assert_eq!(count, expected);
    }
});

/// Counts the ready endpoints on this node by their first address, in the larger family. Endpoints without a
/// port do not count. Returns `None` for a slice that no API server would return.
fn oracle(slice: &Value) -> Option<usize> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (ports, endpoints) = (items(&slice["ports"]), items(&slice["endpoints"]));
    let plain = |value: &Value| matches!(value, Value::Null | Value::Object(_));
    let conditions = endpoints.iter().map(|endpoint| &endpoint["conditions"]);
    if ![slice, &slice["metadata"]].into_iter().chain(&ports).chain(&endpoints).chain(conditions).all(plain) {
        return None;
    }
    let reachable = ports.iter().any(|port| port["port"].as_i64().is_some_and(|port| port != 0));
    let ready = |endpoint: &&Value| {
        let condition = |kind: &str| endpoint["conditions"][kind].as_bool();
        endpoint["nodeName"] == "n1"
            && condition("ready") != Some(false)
            && condition("terminating") != Some(true)
    };
    let first = |endpoint: &Value| endpoint["addresses"][0].as_str()?.parse::<IpAddr>().ok();
    let addresses: BTreeSet<IpAddr> = endpoints.iter().filter(ready).filter_map(first).collect();
    let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    Some(if reachable { v4.max(addresses.len() - v4) } else { 0 })
}
