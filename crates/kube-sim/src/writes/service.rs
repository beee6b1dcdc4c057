//! Services: their defaults, and the node ports that no two of them may have.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::store::object::{Obj, as_map, child_mut, meta_str};
use crate::store::status::{Cause, Status};
use crate::writes::defaults::fill;
use crate::writes::validate::invalid_value;

/// `--service-node-port-range`.
const NODE_PORTS: RangeInclusive<u64> = 30_000..=32_767;

type Spec = Map<String, Value>;

fn text<'a>(map: &'a Spec, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn number(map: &Spec, field: &str) -> Option<u64> {
    map.get(field).and_then(Value::as_u64).filter(|number| *number > 0)
}

fn ports(spec: &Spec) -> impl Iterator<Item = &Spec> {
    spec.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn ports_mut(spec: &mut Spec) -> impl Iterator<Item = &mut Spec> {
    spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().map(as_map)
}

/// Whether it has node ports.
fn outside(spec: &Spec) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn needs_health_check(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// All node ports that a Service has, that of its health check among them.
fn node_ports(service: &Value) -> Vec<u64> {
    let Some(spec) = service.get("spec").and_then(Value::as_object) else { return Vec::new() };
    ports(spec)
        .filter_map(|port| number(port, "nodePort"))
        .chain(number(spec, "healthCheckNodePort"))
        .collect()
}

/// What a Service gets that does not say otherwise.
pub(crate) fn defaults(service: &mut Value) {
    let spec = child_mut(service, "spec");
    fill(spec, json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}));
    if text(spec, "type") != "ExternalName" {
        let ip = format!("10.96.{}.{}", fastrand::u8(..), fastrand::u8(1..255));
        let ip = spec.entry("clusterIP").or_insert_with(|| json!(ip)).clone();
        fill(spec, json!({"clusterIPs": [ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}));
    }
    if outside(spec) {
        fill(spec, json!({"externalTrafficPolicy": "Cluster"}));
    }
    for port in ports_mut(spec) {
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        fill(port, json!({"protocol": "TCP", "targetPort": number}));
    }
}

/// Makes an update ready: what was handed out stays when the client leaves it out
/// (`patchAllocatedValues`), and goes with the type that needed it (`dropTypeDependentFields`).
pub(crate) fn update(old: &Value, service: &mut Value) {
    let spec = child_mut(service, "spec");
    if let Some(old) = old.get("spec").and_then(Value::as_object) {
        keep(old, spec);
    }
    defaults(service);
    let spec = child_mut(service, "spec");
    if !needs_health_check(spec) {
        spec.remove("healthCheckNodePort");
    }
    if !outside(spec) {
        spec.remove("externalTrafficPolicy");
        for port in ports_mut(spec) {
            port.remove("nodePort");
        }
    }
}

fn keep(old: &Spec, spec: &mut Spec) {
    let inside: &[&str] =
        if text(spec, "type") == "ExternalName" { &[] } else { &["clusterIP", "clusterIPs"] };
    for field in inside.iter().chain(&["healthCheckNodePort"]) {
        if let Some(value) = old.get(*field) {
            spec.entry(*field).or_insert_with(|| value.clone());
        }
    }
    let mut used: Vec<u64> = ports(spec).filter_map(|port| number(port, "nodePort")).collect();
    for port in ports_mut(spec).filter(|port| number(port, "nodePort").is_none()) {
        let before = ports(old).find(|old| text(old, "name") == text(port, "name"));
        if let Some(kept) = before.and_then(|old| number(old, "nodePort")).filter(|n| !used.contains(n)) {
            port.insert("nodePort".to_owned(), json!(kept));
            used.push(kept);
        }
    }
}

/// Hands out the node ports that a Service needs, or says which of those it asks for is not free.
/// What it had before, it may keep.
pub(crate) fn allocate(old: Option<&Value>, service: &mut Value, all: &[Obj]) -> Result<(), Status> {
    let own: Vec<u64> = old.map(node_ports).unwrap_or_default();
    let mut taken: BTreeSet<u64> = all.iter().flat_map(|other| node_ports(&other.value)).collect();
    taken.retain(|port| !own.contains(port));
    let name = meta_str(service, "name").unwrap_or_default().to_owned();
    let spec = child_mut(service, "spec");
    if !outside(spec) {
        return Ok(());
    }
    let refused = |cause| Status::invalid("", "Service", &name, vec![cause]);
    let mut requested = requested(spec, &mut taken).map_err(refused)?;
    let wanted = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    if wanted || text(spec, "type") == "NodePort" {
        for port in ports_mut(spec).filter(|port| number(port, "nodePort").is_none()) {
            // TCP and UDP of one port share a node port when a Service is created.
            let inner = number(port, "port");
            let shared = requested.iter().find(|(other, _)| old.is_none() && *other == inner);
            let node_port = if let Some((_, shared)) = shared { *shared } else { free(&mut taken)? };
            requested.push((inner, node_port));
            port.insert("nodePort".to_owned(), json!(node_port));
        }
    }
    if needs_health_check(spec) {
        health_check(spec, &mut taken)?;
    }
    Ok(())
}

/// Takes the node ports that the client named: ports with their node ports.
fn requested(spec: &Spec, taken: &mut BTreeSet<u64>) -> Result<Vec<(Option<u64>, u64)>, Cause> {
    let mut requested = Vec::new();
    let mut protocols = Vec::new();
    for (at, port) in ports(spec).enumerate() {
        let Some(node_port) = number(port, "nodePort") else { continue };
        // Twice in one Service, it is for different protocols.
        let protocol = (node_port, text(port, "protocol"));
        if taken.contains(&node_port) || protocols.contains(&protocol) {
            let field = format!("spec.ports[{at}].nodePort");
            return Err(invalid_value(field, &node_port.to_string(), "provided port is already allocated"));
        }
        protocols.push(protocol);
        requested.push((number(port, "port"), node_port));
    }
    taken.extend(requested.iter().map(|(_, node_port)| node_port));
    Ok(requested)
}

fn health_check(spec: &mut Spec, taken: &mut BTreeSet<u64>) -> Result<(), Status> {
    if let Some(asked) = number(spec, "healthCheckNodePort") {
        if taken.contains(&asked) {
            return Err(failed(&format!(
                "failed to allocate requested HealthCheck NodePort {asked}: provided port is already allocated"
            )));
        }
    } else {
        spec.insert("healthCheckNodePort".to_owned(), json!(free(taken)?));
    }
    Ok(())
}

fn free(taken: &mut BTreeSet<u64>) -> Result<u64, Status> {
    let free: Vec<u64> = NODE_PORTS.filter(|port| !taken.contains(port)).collect();
    let port =
        fastrand::choice(free).ok_or_else(|| failed("failed to allocate a nodePort: range is full"))?;
    taken.insert(port);
    Ok(port)
}

fn failed(why: &str) -> Status {
    let message = format!("Internal error occurred: {why}");
    Status::failure(http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::object::{Key, Object};
    use crate::store::resource::by_plural;

    fn service(spec: &Value) -> Value {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        defaults(&mut service);
        service
    }

    fn stored(value: Value) -> Obj {
        Object::new(by_plural("services"), Key::new("default", "other"), 1, value)
    }

    fn node_port(service: &Value, at: usize) -> u64 {
        service["spec"]["ports"][at]["nodePort"].as_u64().expect("a node port")
    }

    #[test]
    fn node_ports_are_handed_out_once() {
        let every: Vec<Value> =
            (30_001..=32_767).map(|port| json!({"port": port, "nodePort": port})).collect();
        let others = [stored(service(&json!({"type": "NodePort", "ports": every})))];
        let mut last = service(&json!({"type": "NodePort", "ports": [{"port": 80}]}));
        allocate(None, &mut last, &others).expect("one is free");
        assert_eq!(node_port(&last, 0), 30_000);
        let full = allocate(None, &mut last.clone(), &[&others[..], &[stored(last)]].concat());
        assert_eq!(full.unwrap_err().code, 422);
        let mut local = service(
            &json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
        );
        assert_eq!(
            allocate(None, &mut local, &others).unwrap_err().code,
            500,
            "and one for the health check"
        );
    }

    #[test]
    fn protocols_of_a_port_share_a_node_port() {
        let dns = [json!({"port": 53, "name": "t"}), json!({"port": 53, "name": "u", "protocol": "UDP"})];
        let mut service = service(&json!({"type": "NodePort", "ports": dns}));
        allocate(None, &mut service, &[]).expect("there are plenty");
        assert_eq!(node_port(&service, 0), node_port(&service, 1));
        let before = stored(service.clone());
        allocate(Some(&before.value), &mut service, std::slice::from_ref(&before)).expect("it may keep them");
        assert_eq!(service, before.value);
    }
}
