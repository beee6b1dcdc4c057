//! The cells of each kind, as the API server's printers fill them.

use serde_json::{Value, json};

use crate::store::object::Obj;
use crate::store::time::age;

const NONE: &str = "<none>";

/// Returns all cells of an object.
pub(super) fn cells(object: &Obj) -> Vec<Value> {
    let (v, name) = (&object.value, object.key.name.clone());
    let old = age(object.meta("creationTimestamp"));
    let cells = match object.resource.plural {
        "nodes" => node(v, name, old).to_vec(),
        "pods" => pod(v, name, old).to_vec(),
        "services" => service(v, name, old).to_vec(),
        "leases" => vec![name, text(v, "/spec/holderIdentity"), old],
        "namespaces" => vec![name, text(v, "/status/phase"), old],
        _ => vec![name, old],
    };
    cells.into_iter().map(Value::String).collect()
}

fn node(v: &Value, name: String, old: String) -> [String; 10] {
    let ready = items(v, "/status/conditions").iter().find(|c| text(c, "/type") == "Ready");
    let mut status = match ready.map(|c| text(c, "/status")) {
        Some(s) if s == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if v.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = v.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let role = |(key, _): (&String, &Value)| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    let roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    let address = |kind: &str| {
        let found = items(v, "/status/addresses").iter().find(|a| text(a, "/type") == kind);
        or_none(found.map(|a| text(a, "/address")).unwrap_or_default())
    };
    let unknown = |text: String| if text.is_empty() { "<unknown>".to_owned() } else { text };
    let kernel = text(v, "/status/nodeInfo/kernelVersion");
    let kernel = match text(v, "/status/nodeInfo/architecture") {
        arch if !arch.is_empty() && !kernel.is_empty() => format!("{kernel} ({arch})"),
        _ => unknown(kernel),
    };
    [
        name,
        status,
        or_none(roles.join(",")),
        old,
        text(v, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        unknown(text(v, "/status/nodeInfo/osImage")),
        kernel,
        unknown(text(v, "/status/nodeInfo/containerRuntimeVersion")),
    ]
}

fn pod(v: &Value, name: String, old: String) -> [String; 9] {
    let statuses = items(v, "/status/containerStatuses");
    let ready = statuses.iter().filter(|c| c.get("ready") == Some(&json!(true))).count();
    let restarts: u64 = statuses.iter().map(|c| number(c, "/restartCount")).sum();
    let status = if !text(v, "/metadata/deletionTimestamp").is_empty() {
        "Terminating".to_owned()
    } else if text(v, "/status/reason").is_empty() {
        text(v, "/status/phase")
    } else {
        text(v, "/status/reason")
    };
    [
        name,
        format!("{ready}/{}", items(v, "/spec/containers").len()),
        status,
        restarts.to_string(),
        old,
        or_none(text(v, "/status/podIP")),
        or_none(text(v, "/spec/nodeName")),
        or_none(text(v, "/status/nominatedNodeName")),
        NONE.to_owned(),
    ]
}

fn service(v: &Value, name: String, old: String) -> [String; 7] {
    let kind = text(v, "/spec/type");
    let ingress = items(v, "/status/loadBalancer/ingress").iter();
    let ingress: Vec<String> = ingress.map(|i| text(i, "/ip") + &text(i, "/hostname")).collect();
    let outside = match kind.as_str() {
        "LoadBalancer" if ingress.is_empty() => "<pending>".to_owned(),
        "ExternalName" => text(v, "/spec/externalName"),
        _ => or_none(ingress.join(",")),
    };
    let port = |p: &Value| match number(p, "/nodePort") {
        0 => format!("{}/{}", number(p, "/port"), text(p, "/protocol")),
        node => format!("{}:{node}/{}", number(p, "/port"), text(p, "/protocol")),
    };
    let ports: Vec<String> = items(v, "/spec/ports").iter().map(port).collect();
    let selector = v.pointer("/spec/selector").and_then(Value::as_object).into_iter().flatten();
    let selector: Vec<String> =
        selector.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    [
        name,
        kind,
        or_none(text(v, "/spec/clusterIP")),
        outside,
        or_none(ports.join(",")),
        old,
        or_none(selector.join(",")),
    ]
}

fn text(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}
