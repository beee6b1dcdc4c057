//! The defaults and node ports of a Service.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::store::cause::Cause;
use crate::store::names::{SUBDOMAIN, is_subdomain};
use crate::store::object::{Obj, as_map, child_mut, fill};
use crate::store::resource::Resource;

/// The default of `--service-node-port-range`.
const NODE_PORTS: RangeInclusive<u64> = 30_000..=32_767;

type Spec = Map<String, Value>;

fn text<'a>(map: &'a Spec, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn ports(spec: &Spec) -> impl Iterator<Item = &Spec> {
    spec.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn ports_mut(spec: &mut Spec) -> impl Iterator<Item = &mut Spec> {
    spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().map(as_map)
}

/// Returns true if the Service has node ports.
fn outside(spec: &Spec) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn needs_health_check(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Prepares a Service for the store, over `old` if there is one. Allocated values stay when the client omits
/// them, and go with the type that needed them.
pub(crate) fn prepare(old: Option<&Value>, service: &mut Value) {
    let old = old.and_then(|old| old.get("spec")).and_then(Value::as_object);
    let spec = child_mut(service, "spec");
    fill(spec, json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}));
    if text(spec, "type") != "ExternalName" {
        let ip = old.and_then(|old| old.get("clusterIP")).cloned();
        let ip = ip.unwrap_or_else(|| json!(format!("10.96.{}.{}", fastrand::u8(..), fastrand::u8(1..255))));
        let ip = spec.entry("clusterIP").or_insert(ip).clone();
        fill(spec, json!({"clusterIPs": [ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}));
    }
    let (outside, local) = (outside(spec), needs_health_check(spec));
    if outside {
        fill(spec, json!({"externalTrafficPolicy": "Cluster"}));
    } else {
        spec.remove("externalTrafficPolicy");
    }
    let health_check = old.and_then(|old| old.get("healthCheckNodePort")).filter(|_| local);
    match health_check {
        Some(port) => drop(spec.entry("healthCheckNodePort").or_insert_with(|| port.clone())),
        None if !local => drop(spec.remove("healthCheckNodePort")),
        None => {}
    }
    for port in ports_mut(spec) {
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        fill(port, json!({"protocol": "TCP", "targetPort": number}));
        let mut before =
            old.into_iter().flat_map(ports).filter(|old| text(old, "name") == text(port, "name"));
        match before.next().and_then(|old| old.get("nodePort")) {
            _ if !outside => drop(port.remove("nodePort")),
            Some(before) => drop(port.entry("nodePort").or_insert_with(|| before.clone())),
            None => {}
        }
    }
}

/// Prepares a written status of a Service for the store: each address has a mode.
pub(crate) fn settle_status(service: &mut Value) {
    let status = child_mut(service, "status");
    let load_balancer = as_map(status.entry("loadBalancer").or_insert_with(|| json!({})));
    let Some(entries) = load_balancer.get_mut("ingress").and_then(Value::as_array_mut) else { return };
    for entry in entries.iter_mut().map(as_map).filter(|entry| entry.contains_key("ip")) {
        fill(entry, json!({"ipMode": "VIP"}));
    }
    if entries.is_empty() {
        load_balancer.remove("ingress");
    }
}

/// Removes the status that only a Service of type `LoadBalancer` has.
pub(crate) fn clear_status(service: &mut Value) {
    if service.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer") {
        child_mut(service, "status").insert("loadBalancer".to_owned(), json!({}));
    }
}

/// Returns the errors of a Service's status.
pub(crate) fn status_causes(service: &Value) -> Vec<Cause> {
    const PATH: &str = "status.loadBalancer.ingress";
    let entries = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    let entries = entries.map(Vec::as_slice).unwrap_or_default();
    if service.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer") {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return if entries.is_empty() { Vec::new() } else { vec![Cause::forbidden(PATH, why)] };
    }
    let mut causes = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = |field: &str| format!("{PATH}[{at}].{field}");
        let quoted = |text: &str| Value::String(text.to_owned()).to_string();
        if !text("ip").is_empty() && text("ip").parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(path("ip"), &quoted(text("ip")), why));
        }
        match text("ipMode") {
            "" => {}
            _ if text("ip").is_empty() => {
                causes.push(Cause::forbidden(path("ipMode"), "may not be specified when `ip` is not set"));
            }
            "Proxy" | "VIP" => {}
            mode => causes.push(Cause::unsupported(path("ipMode"), mode, &["Proxy", "VIP"])),
        }
        let name = text("hostname");
        if !name.is_empty() && !is_subdomain(name) {
            causes.push(Cause::invalid(path("hostname"), &quoted(name), SUBDOMAIN));
        }
        if name.parse::<IpAddr>().is_ok() {
            let why = "must be a DNS name, not an IP address";
            causes.push(Cause::invalid(path("hostname"), &quoted(name), why));
        }
    }
    causes
}

/// Gives each port of a Service that needs one a free node port, as long as there are any.
pub(crate) fn allocate(resource: &Resource, service: &mut Value, all: &[Obj]) {
    if resource.plural != "services" {
        return;
    }
    let mut taken: Vec<u64> = all.iter().flat_map(|other| node_ports(&other.value)).collect();
    taken.extend(node_ports(service));
    let spec = child_mut(service, "spec");
    let wanted = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    if !outside(spec) || !wanted {
        return;
    }
    let local = needs_health_check(spec);
    let mut free = NODE_PORTS.filter(|port| !taken.contains(port)).map(|port| json!(port));
    for port in ports_mut(spec).filter(|port| !port.contains_key("nodePort")) {
        port.extend(free.next().map(|free| ("nodePort".to_owned(), free)));
    }
    if local && !spec.contains_key("healthCheckNodePort") {
        spec.extend(free.next().map(|free| ("healthCheckNodePort".to_owned(), free)));
    }
}

/// Returns all node ports of a Service, including that of its health check.
fn node_ports(service: &Value) -> Vec<u64> {
    let Some(spec) = service.get("spec").and_then(Value::as_object) else { return Vec::new() };
    let of_ports = ports(spec).filter_map(|port| port.get("nodePort")?.as_u64());
    of_ports.chain(spec.get("healthCheckNodePort").and_then(Value::as_u64)).collect()
}
