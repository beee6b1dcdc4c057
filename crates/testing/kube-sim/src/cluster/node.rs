//! Realistic nodes: the shape of a captured node, with an adjustable size.

use crate::store::object::{Key, now, uuid};
use crate::store::resource::nodes;
use crate::store::status::ApiStatus;
use crate::store::{Edit, Store};
use crate::writes::record_manager;
use serde_json::{Value, json};

/// A node as a kubelet registers it, with `$words` for what differs.
const TEMPLATE: &str = include_str!("node.json");

/// Returns a node as a kubelet registers it. `index` makes its address unique; images fill it up to about `bytes`.
pub fn make(name: &str, index: usize, bytes: usize) -> Value {
    let address = format!("10.{}.{}.{}", 64 + (index >> 16) % 64, (index >> 8) & 255, index & 255);
    let words = [
        ("$name", name.to_owned()),
        ("$now", now()),
        ("$machine", uuid().replace('-', "")),
        ("$boot", uuid()),
        ("$address", address),
    ];
    let text = words.iter().fold(TEMPLATE.to_owned(), |text, (word, value)| text.replace(word, value));
    let mut node: Value = serde_json::from_str(&text).unwrap_or_default();
    let image = |number: usize| {
        let name = format!("registry.example.com/service-{number}");
        let digest = format!("{:064x}", fastrand::u128(..));
        let names = [format!("{name}@sha256:{digest}"), format!("{name}:v1.{}.0", fastrand::u8(..))];
        json!({"names": names, "sizeBytes": fastrand::u64(1_000_000..900_000_000)})
    };
    let images = bytes.saturating_sub(node.to_string().len() + 700) / image(0).to_string().len();
    node["status"]["images"] = (0..images).map(image).collect();
    node
}

/// Changes a node as `manager`, if it differs. Returns false if the node does not exist.
pub(crate) fn edit(store: &Store, name: &str, manager: &str, change: impl FnOnce(&mut Value)) -> bool {
    let written = store.write(nodes(), &Key::new("", name), |old| {
        let old = &old.ok_or_else(|| ApiStatus::not_found(nodes().subject(name)))?.value;
        let mut new = old.clone();
        change(&mut new);
        if *old == new {
            return Ok(Edit::Keep);
        }
        record_manager(Some(old), &mut new, manager, "");
        Ok(Edit::Put(new))
    });
    written.is_ok()
}

/// Sets a condition. The transition time changes only when the status does.
pub(crate) fn set_condition(node: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let now = now();
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut fresh = json!({
        "type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
        "reason": reason, "message": message,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            if old["status"] == fresh["status"] {
                fresh["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = fresh;
        }
        None => conditions.push(fresh),
    }
    node["status"]["conditions"] = json!(conditions);
}
