//! The cells of each kind, as the API server's printers fill them.

use serde_json::{Value, json};

use crate::store::object::Obj;
use crate::store::time::age;

const NONE: &str = "<none>";

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    value.pointer(path).filter(|v| !v.is_null())
}

fn text(value: &Value, path: &str) -> String {
    match at(value, path) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count(value: &Value, path: &str) -> usize {
    match at(value, path) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn number(value: &Value, path: &str) -> u64 {
    at(value, path).and_then(Value::as_u64).unwrap_or(0)
}

fn labels(value: Option<&Value>) -> String {
    let pairs = value.and_then(Value::as_object).into_iter().flatten();
    or_none(
        pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(","),
    )
}

/// The first few of a list, and how many more there are (`formatEndpoints`).
fn first_of(all: &[String], most: usize) -> String {
    if all.is_empty() {
        return NONE.to_owned();
    }
    let shown = all.iter().take(most).cloned().collect::<Vec<_>>().join(",");
    if all.len() > most { format!("{shown} + {} more...", all.len() - most) } else { shown }
}

/// All cells of an object.
pub(super) fn cells(object: &Obj) -> Vec<Value> {
    let v = &object.value;
    let name = object.key.name.clone();
    let old = age(object.meta("creationTimestamp"));
    match object.resource.plural {
        "nodes" => node(v, &name, &old),
        "pods" => pod(v, &name, &old),
        "services" => service(v, &name, &old),
        "leases" => row([name, text(v, "/spec/holderIdentity"), old]),
        "endpointslices" => slice(v, &name, &old),
        "endpoints" => row([name, endpoints(v), old]),
        "namespaces" => row([name, text(v, "/status/phase"), old]),
        "configmaps" => vec![json!(name), json!(count(v, "/data") + count(v, "/binaryData")), json!(old)],
        "secrets" => vec![json!(name), json!(text(v, "/type")), json!(count(v, "/data")), json!(old)],
        "serviceaccounts" => vec![json!(name), json!(count(v, "/secrets")), json!(old)],
        "events" => event(v, &name),
        "deployments" | "statefulsets" | "replicasets" | "daemonsets" => workload(object, &name, &old),
        "poddisruptionbudgets" => budget(v, &name, &old),
        "clusterroles" | "roles" => {
            row([name, object.meta("creationTimestamp").unwrap_or_default().to_owned()])
        }
        "clusterrolebindings" | "rolebindings" => {
            row([name, format!("{}/{}", text(v, "/roleRef/kind"), text(v, "/roleRef/name")), old])
        }
        _ => row([name, old]),
    }
}

fn row<const N: usize>(cells: [String; N]) -> Vec<Value> {
    cells.into_iter().map(Value::String).collect()
}

fn node(v: &Value, name: &str, old: &str) -> Vec<Value> {
    let ready = items(v, "/status/conditions").iter().find(|c| text(c, "/type") == "Ready");
    let mut status = match ready.map(|c| text(c, "/status")) {
        Some(s) if s == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(v, "/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles = Vec::new();
    for (key, value) in at(v, "/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role.to_owned()),
            _ if key == "kubernetes.io/role" => roles.push(value.as_str().unwrap_or_default().to_owned()),
            _ => {}
        }
    }
    roles.retain(|role| !role.is_empty());
    roles.sort();
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
    row([
        name.to_owned(),
        status,
        or_none(roles.join(",")),
        old.to_owned(),
        text(v, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        unknown(text(v, "/status/nodeInfo/osImage")),
        kernel,
        unknown(text(v, "/status/nodeInfo/containerRuntimeVersion")),
    ])
}

fn pod(v: &Value, name: &str, old: &str) -> Vec<Value> {
    let statuses = items(v, "/status/containerStatuses");
    let ready = statuses.iter().filter(|c| at(c, "/ready") == Some(&json!(true))).count();
    let restarts: u64 = statuses.iter().map(|c| number(c, "/restartCount")).sum();
    let mut status = match text(v, "/status/reason") {
        reason if reason.is_empty() => text(v, "/status/phase"),
        reason => reason,
    };
    if at(v, "/metadata/deletionTimestamp").is_some() {
        "Terminating".clone_into(&mut status);
    }
    row([
        name.to_owned(),
        format!("{ready}/{}", items(v, "/spec/containers").len()),
        status,
        restarts.to_string(),
        old.to_owned(),
        or_none(text(v, "/status/podIP")),
        or_none(text(v, "/spec/nodeName")),
        or_none(text(v, "/status/nominatedNodeName")),
        NONE.to_owned(),
    ])
}

fn service(v: &Value, name: &str, old: &str) -> Vec<Value> {
    let kind = text(v, "/spec/type");
    let outside: Vec<String> = match kind.as_str() {
        "LoadBalancer" => items(v, "/status/loadBalancer/ingress")
            .iter()
            .map(|i| text(i, "/ip") + &text(i, "/hostname"))
            .collect(),
        "ExternalName" => vec![text(v, "/spec/externalName")],
        _ => {
            items(v, "/spec/externalIPs").iter().map(|i| i.as_str().unwrap_or_default().to_owned()).collect()
        }
    };
    let outside = match outside.join(",") {
        ips if ips.is_empty() && kind == "LoadBalancer" => "<pending>".to_owned(),
        ips => or_none(ips),
    };
    let port = |p: &Value| match number(p, "/nodePort") {
        0 => format!("{}/{}", number(p, "/port"), text(p, "/protocol")),
        node => format!("{}:{node}/{}", number(p, "/port"), text(p, "/protocol")),
    };
    let ports = items(v, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(",");
    row([
        name.to_owned(),
        kind,
        or_none(text(v, "/spec/clusterIP")),
        outside,
        or_none(ports),
        old.to_owned(),
        labels(at(v, "/spec/selector")),
    ])
}

fn slice(v: &Value, name: &str, old: &str) -> Vec<Value> {
    let ports: Vec<String> = items(v, "/ports").iter().map(|p| number(p, "/port").to_string()).collect();
    let ports = if ports.is_empty() { "<unset>".to_owned() } else { first_of(&ports, 3) };
    let addresses: Vec<String> = items(v, "/endpoints")
        .iter()
        .flat_map(|e| items(e, "/addresses"))
        .map(|a| a.as_str().unwrap_or_default().to_owned())
        .collect();
    let addresses = if addresses.is_empty() { "<unset>".to_owned() } else { first_of(&addresses, 3) };
    row([name.to_owned(), text(v, "/addressType"), ports, addresses, old.to_owned()])
}

fn endpoints(v: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(v, "/subsets") {
        for address in items(subset, "/addresses") {
            for port in items(subset, "/ports") {
                all.push(format!("{}:{}", text(address, "/ip"), number(port, "/port")));
            }
        }
    }
    first_of(&all, 3)
}

fn event(v: &Value, name: &str) -> Vec<Value> {
    let seen = |path: &str| age(at(v, path).and_then(Value::as_str));
    let object =
        format!("{}/{}", text(v, "/involvedObject/kind").to_lowercase(), text(v, "/involvedObject/name"));
    let source = [text(v, "/source/component"), text(v, "/source/host")];
    let source = source.iter().filter(|s| !s.is_empty()).cloned().collect::<Vec<_>>().join(", ");
    vec![
        json!(seen("/lastTimestamp")),
        json!(text(v, "/type")),
        json!(text(v, "/reason")),
        json!(object),
        json!(text(v, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(v, "/message")),
        json!(seen("/firstTimestamp")),
        json!(number(v, "/count").max(1)),
        json!(name),
    ]
}

fn workload(object: &Obj, name: &str, old: &str) -> Vec<Value> {
    let v = &object.value;
    let containers = items(v, "/spec/template/spec/containers");
    let of = |field: &str| containers.iter().map(|c| text(c, field)).collect::<Vec<_>>().join(",");
    let (names, images) = (json!(of("/name")), json!(of("/image")));
    let selector = json!(labels(at(v, "/spec/selector/matchLabels")));
    let n = |path: &str| json!(number(v, path));
    let ready = json!(format!("{}/{}", number(v, "/status/readyReplicas"), number(v, "/spec/replicas")));
    match object.resource.plural {
        "deployments" => vec![
            json!(name),
            ready,
            n("/status/updatedReplicas"),
            n("/status/availableReplicas"),
            json!(old),
            names,
            images,
            selector,
        ],
        "statefulsets" => vec![json!(name), ready, json!(old), names, images],
        "replicasets" => vec![
            json!(name),
            n("/spec/replicas"),
            n("/status/replicas"),
            n("/status/readyReplicas"),
            json!(old),
            names,
            images,
            selector,
        ],
        _ => vec![
            json!(name),
            n("/status/desiredNumberScheduled"),
            n("/status/currentNumberScheduled"),
            n("/status/numberReady"),
            n("/status/updatedNumberScheduled"),
            n("/status/numberAvailable"),
            json!(labels(at(v, "/spec/template/spec/nodeSelector"))),
            json!(old),
            names,
            images,
            selector,
        ],
    }
}

fn budget(v: &Value, name: &str, old: &str) -> Vec<Value> {
    let or_na = |text: String| if text.is_empty() { "N/A".to_owned() } else { text };
    vec![
        json!(name),
        json!(or_na(text(v, "/spec/minAvailable"))),
        json!(or_na(text(v, "/spec/maxUnavailable"))),
        json!(number(v, "/status/disruptionsAllowed")),
        json!(old),
    ]
}
