//! The watched objects, reduced to the data that is needed.

use crate::plan::observed::{
    Cordon, DELETING, Facts, Family, NodeOut, ObservedNode, ObservedService, PortFacts, ServiceKey,
    ServiceStatus,
};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::{ConditionStatus, EXCLUDE_LABEL, Node, NodeFacts, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation for the source ranges of a Service, from before there was a field for them.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const PREFIX: &str = "nodegate.io/haproxy-";
/// The maximum number of ports, addresses, labels and the like of one object.
const MAX_PARTS: usize = 1000;

/// What a record has changed.
pub(super) struct Recorded {
    pub(super) is_news: bool,
    /// The Service that is no longer there.
    pub(super) gone: Option<ServiceKey>,
}

/// Puts the facts of an object in place by these rules, or removes them without rules.
pub(super) type Record<Object> = fn(&Object, &mut Facts, Option<&Policy>) -> Recorded;

pub(super) fn record_node(node: &WatchedNode, facts: &mut Facts, rules: Option<&Policy>) -> Recorded {
    let name = node.metadata.name.clone().unwrap_or_default();
    let is_news = put(&mut facts.nodes, name, rules.map(|rules| node_facts(node, rules)));
    Recorded { is_news, gone: None }
}

pub(super) fn record_service(service: &Service, facts: &mut Facts, rules: Option<&Policy>) -> Recorded {
    let ObjectMeta { namespace, name, .. } = &service.metadata;
    let key = [namespace, name].map(|part| part.as_deref().unwrap_or_default()).join("/");
    let known = rules.and_then(|_| service_facts(service));
    let is_gone = known.is_none();
    let is_news = put(&mut facts.services, key.clone(), known);
    Recorded { is_news, gone: Some(key).filter(|_| is_news && is_gone) }
}

fn put<F: PartialEq>(known: &mut BTreeMap<String, Arc<F>>, key: String, facts: Option<F>) -> bool {
    let Some(facts) = facts else { return known.remove(&key).is_some() };
    let is_news = known.get(&key).is_none_or(|before| **before != facts);
    known.insert(key, Arc::new(facts));
    is_news
}

/// Returns the facts of a Node. Its state is the one that the agent would report. If the control plane does
/// not hear a kubelet (Ready=Unknown), only the agent can tell if it is alive, and HAProxy's checks ask it.
fn node_facts(node: &WatchedNode, rules: &Policy) -> ObservedNode {
    let meta = &node.metadata;
    let facts = node.facts();
    let out = out_by(rules, facts.clone());
    let without_label = || Policy { drain_on: rules.drain_on.without_label(), ..rules.clone() };
    let without_cordon = || NodeFacts { unschedulable: false, ..facts.clone() };
    let is_labelled = facts.labels.contains_key(EXCLUDE_LABEL);
    let is_out_by_label = is_labelled && out.is_some() && out_by(&without_label(), facts.clone()).is_none();
    let shares_budget = facts.unschedulable && !is_labelled && rules.drain_on.contains_cordon();
    let since = || Some(writer_of(meta, &["f:spec", "f:unschedulable"])?.time.as_ref()?.0.as_second());
    let cordon = shares_budget.then(|| Cordon { since: since(), besides: out_by(rules, without_cordon()) });
    let labels = meta.labels.iter().flatten().map(|(key, value)| (clip(key), clip(value)));
    ObservedNode {
        name: meta.name.clone().unwrap_or_default(),
        out,
        is_out_by_label,
        cordon,
        labels: labels.take(MAX_PARTS).collect(),
        chosen: annotation(meta, "address"),
        addresses: node.addresses().map(|(kind, address)| (clip(kind), address)).take(MAX_PARTS).collect(),
    }
}

fn out_by(rules: &Policy, facts: NodeFacts) -> NodeOut {
    let state = match facts.condition("Ready").map(|ready| ready.status) {
        Some(ConditionStatus::Unknown) => rules.by_signals_alone(&facts),
        _ => rules.node_ready(&Node::Present(facts), false),
    };
    state.reason().map(|reason| (state.verdict(), reason.label().to_owned()))
}

fn annotation(meta: &ObjectMeta, name: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(&format!("{PREFIX}{name}")).map(|text| clip(text))
}

/// Returns the facts of a Service. `None` if it has no ports on nodes.
fn service_facts(service: &Service) -> Option<ObservedService> {
    let spec = service.spec.as_ref()?;
    let kind = spec.type_.as_deref().filter(|kind| matches!(*kind, "NodePort" | "LoadBalancer"))?;
    let meta = &service.metadata;
    let family = |word: &String| match word.as_str() {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    };
    let health_port = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok());
    let created = meta.creation_timestamp.as_ref().filter(|_| meta.deletion_timestamp.is_none());
    Some(ObservedService {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        created: created.map_or(DELETING, |time| time.0.as_second()),
        load_balancer: kind == "LoadBalancer",
        class: spec.load_balancer_class.as_deref().map(clip),
        publish: annotation(meta, "publish").map(|text| text.trim() == "true"),
        address: annotation(meta, "bind").or_else(|| spec.load_balancer_ip.as_deref().map(clip)),
        source_ranges: source_ranges(spec, meta),
        sticky: spec.session_affinity.as_deref() == Some("ClientIP"),
        local: spec.external_traffic_policy.as_deref() == Some("Local"),
        health_port: health_port.filter(|port| *port != 0),
        families: spec.ip_families.iter().flatten().filter_map(family).take(2).collect(),
        ports: spec.ports.iter().flatten().filter_map(port_facts).take(MAX_PARTS).collect(),
        asks_agents: annotation(meta, "local-check").is_some_and(|text| text.trim() == "agent"),
        status: service_status(service),
    })
}

fn service_status(service: &Service) -> ServiceStatus {
    let meta = &service.metadata;
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    ServiceStatus {
        uid: meta.uid.as_deref().map(clip).unwrap_or_default(),
        version: meta.resource_version.as_deref().map(clip).unwrap_or_default(),
        ingress: ingress.into_iter().flatten().take(MAX_PARTS).cloned().collect(),
        writer: writer_of(meta, &["f:status", "f:loadBalancer", "f:ingress"])
            .and_then(|writer| writer.manager.as_deref().map(clip)),
    }
}

/// Returns the entry of the field manager that was the last one to change a field.
fn writer_of<'a>(meta: &'a ObjectMeta, path: &[&str]) -> Option<&'a ManagedFieldsEntry> {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.iter().try_fold(fields?, |fields, key| fields.get(key)).map(drop)
    };
    meta.managed_fields.as_ref()?.iter().find(|entry| owns(entry).is_some())
}

/// Returns the source ranges. Like cloud providers, reads the older annotation if the field is empty.
fn source_ranges(spec: &ServiceSpec, meta: &ObjectMeta) -> Vec<String> {
    let older = || meta.annotations.as_ref()?.get(SOURCE_RANGES);
    let all: Vec<&str> = match &spec.load_balancer_source_ranges {
        Some(ranges) if !ranges.is_empty() => ranges.iter().map(String::as_str).collect(),
        _ => older().map(|text| text.split(',').collect()).unwrap_or_default(),
    };
    // One more than allowed, so that too many are noticed.
    all.into_iter().map(clip).filter(|text| !text.trim().is_empty()).take(MAX_PARTS + 1).collect()
}

fn port_facts(of: &ServicePort) -> Option<PortFacts> {
    Some(PortFacts {
        port: u16::try_from(of.port).ok().filter(|port| *port != 0)?,
        node_port: of.node_port.unwrap_or_default().try_into().unwrap_or_default(),
        protocol: clip(of.protocol.as_deref().unwrap_or("TCP")),
    })
}

fn clip(text: &str) -> String {
    text.chars().take(317).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{DrainSignals, Verdict};

    #[test]
    fn objects_with_everything_left_out_or_odd_are_read() {
        for json in ["{}", r#"{"metadata":{},"spec":null,"status":null}"#] {
            let node: WatchedNode = serde_json::from_str(json).unwrap();
            let out = Some((Verdict::NotReady, "ReadyConditionMissing".to_owned()));
            let expected = ObservedNode { out, ..ObservedNode::default() };
            assert_eq!(node_facts(&node, &Policy::default()), expected);
            assert_eq!(service_facts(&serde_json::from_str(json).unwrap()), None);
        }
        let odd = r#"{"spec":{"type":"NodePort","ports":[{"port":99999,"nodePort":1},{"port":1,"nodePort":99999}]}}"#;
        let ports = service_facts(&serde_json::from_str(odd).unwrap()).unwrap().ports;
        assert_eq!(ports.iter().map(|port| port.node_port).collect::<Vec<_>>(), [0]);
    }

    /// The rules themselves are those of the agent. The control plane does not hear a kubelet with Ready=Unknown.
    #[test]
    fn a_node_has_its_state_the_date_of_its_cordon_and_whether_its_label_alone_takes_it_out() {
        let (default, cordoned) = (&*DrainSignals::default().to_string(), r#""unschedulable":true"#);
        let label = &*format!("{EXCLUDE_LABEL:?}:\"\"");
        let (draining, not_ready) = (Some(Verdict::Draining), Some(Verdict::NotReady));
        let dated = |besides| Some((Some(1_795_243_210), besides));
        for (labels, spec, ready, drain_on, out, is_out_by_label, cordon) in [
            ("", "", "True", default, None, false, None),
            ("", cordoned, "True", default, draining, false, dated(None)),
            ("", cordoned, "True", "deleting", None, false, None),
            ("", cordoned, "True", "none", None, false, None),
            ("", cordoned, "False", default, not_ready, false, dated(not_ready)),
            ("", cordoned, "Unknown", default, draining, false, dated(None)),
            ("", "", "Unknown", default, None, false, None),
            (label, "", "True", default, draining, true, None),
            (label, cordoned, "True", default, draining, false, None),
            (label, "", "True", "unschedulable", None, false, None),
        ] {
            let managers = r#"[{"manager":"kubelet","fieldsV1":{"f:status":{}}},{"time":"2026-11-21T06:40:10Z",
                "fieldsV1":{"f:spec":{"f:unschedulable":{}}}}]"#;
            let conditions = format!(r#"[{{"type":"Ready","status":"{ready}","reason":"x"}}]"#);
            let json = format!(
                r#"{{"metadata":{{"labels":{{{labels}}},"managedFields":{managers}}},"spec":{{{spec}}},
                    "status":{{"conditions":{conditions}}}}}"#
            );
            let rules = Policy { drain_on: drain_on.parse().unwrap(), ..Policy::default() };
            let node = node_facts(&serde_json::from_str(&json).unwrap(), &rules);
            let verdict = |out: NodeOut| out.map(|(verdict, _)| verdict);
            let found = node.cordon.map(|cordon| (cordon.since, verdict(cordon.besides)));
            let found = (verdict(node.out), node.is_out_by_label, found);
            assert_eq!(found, (out, is_out_by_label, cordon), "{labels} {spec} {ready} {drain_on}");
        }
    }
}
