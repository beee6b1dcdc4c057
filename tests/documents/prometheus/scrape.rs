//! The scrape configuration that the operator makes of nodegate's `PodMonitor`, after its
//! `generatePodMonitorConfig`. Debian's Prometheus can't discover pods, so the configuration has the results
//! of discovery, label by label.

use super::component::{Component, PodMonitorSpec, Relabeling};
use super::promtool::promtool;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// A pod without declared ports, as discovery shows it: a target for each container, with the pod's address
/// alone.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) ip: String,
    pub(crate) container: String,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Pod {
    /// Returns a pod of the DaemonSet.
    pub(crate) fn of(component: &Component, node: &str, ip: &str) -> Self {
        Self {
            name: format!("nodegate-{node}"),
            node: node.to_owned(),
            ip: ip.to_owned(),
            container: "nodegate".to_owned(),
            labels: component.pod_labels.clone(),
        }
    }

    fn target(&self) -> Value {
        let mut labels = BTreeMap::from([
            ("__meta_kubernetes_namespace".to_owned(), "nodegate".to_owned()),
            ("__meta_kubernetes_pod_name".to_owned(), self.name.clone()),
            ("__meta_kubernetes_pod_ip".to_owned(), self.ip.clone()),
            ("__meta_kubernetes_pod_node_name".to_owned(), self.node.clone()),
            ("__meta_kubernetes_pod_container_name".to_owned(), self.container.clone()),
            ("__meta_kubernetes_pod_phase".to_owned(), "Running".to_owned()),
            ("__meta_kubernetes_pod_ready".to_owned(), "true".to_owned()),
        ]);
        for (name, value) in &self.labels {
            labels.insert(meta_label(name), value.clone());
        }
        json!({"targets": [self.ip], "labels": labels})
    }
}

fn meta_label(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("__meta_kubernetes_pod_label_{name}")
}

/// Returns the job's configuration, with an interval of its own.
pub(crate) fn job(monitor: &PodMonitorSpec, pods: &[Pod], interval: &str) -> Value {
    let [endpoint] = monitor.pod_metrics_endpoints.as_slice() else { panic!("one endpoint") };
    let from = |source: &str, target: &str| json!({"source_labels": [source], "target_label": target});
    let mut relabel = vec![json!({
        "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop",
    })];
    for (label, value) in &monitor.selector.match_labels {
        relabel.push(json!({"source_labels": [meta_label(label)], "regex": value, "action": "keep"}));
    }
    relabel.push(from("__meta_kubernetes_namespace", "namespace"));
    relabel.push(from("__meta_kubernetes_pod_container_name", "container"));
    relabel.push(from("__meta_kubernetes_pod_name", "pod"));
    relabel.push(json!({
        "source_labels": [meta_label(&monitor.job_label)], "regex": "(.+)", "target_label": "job", "replacement": "${1}",
    }));
    relabel.extend(endpoint.relabelings.iter().map(Relabeling::configuration));
    json!({
        "job_name": "podMonitor/nodegate/nodegate/0",
        "honor_labels": false,
        "metrics_path": endpoint.path,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "static_configs": pods.iter().map(Pod::target).collect::<Vec<_>>(),
        "relabel_configs": relabel,
    })
}

impl Relabeling {
    fn configuration(&self) -> Value {
        let all = [
            ("source_labels", Some(json!(self.source_labels))),
            ("regex", self.regex.as_ref().map(|regex| json!(regex))),
            ("target_label", self.target_label.as_ref().map(|label| json!(label))),
            ("replacement", self.replacement.as_ref().map(|replacement| json!(replacement))),
            ("action", self.action.as_ref().map(|action| json!(action))),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[test]
fn every_agent_is_one_scrape_target_at_its_port() {
    let component = Component::render();
    let mut sidecar = Pod::of(&component, "a", "10.0.0.11");
    sidecar.container = "sidecar".to_owned();
    let mut haproxy = Pod::of(&component, "a", "10.0.0.11");
    haproxy.labels.insert("app.kubernetes.io/component".to_owned(), "haproxy".to_owned());
    let pods = [Pod::of(&component, "a", "10.0.0.11"), Pod::of(&component, "b", "fd00::b"), sidecar, haproxy];
    let directory = tempfile::tempdir().unwrap();
    let endpoint = &component.pod_monitor.pod_metrics_endpoints[0];
    let job = job(&component.pod_monitor, &pods, &endpoint.interval);
    let config = json!({"scrape_configs": [job]}).to_string();
    fs::write(directory.path().join("prometheus.yml"), config).unwrap();
    let args =
        ["check", "service-discovery", "--timeout=2s", "prometheus.yml", "podMonitor/nodegate/nodegate/0"];
    let found: Vec<Value> = serde_json::from_str(&promtool(directory.path(), &args)).unwrap();
    assert_eq!(found.len(), 4, "{found:#?}");
    let kept = found.iter().map(|target| &target["labels"]).filter(|labels| !labels["instance"].is_null());
    let mut kept: Vec<_> = kept.collect();
    kept.sort_by_key(|labels| labels["node"].to_string());
    let expected = [("a", "10.0.0.11:25001"), ("b", "[fd00::b]:25001")];
    assert_eq!(kept.len(), expected.len(), "{found:#?}");
    for (labels, (node, address)) in kept.into_iter().zip(expected) {
        assert_eq!(labels["node"], node);
        assert_eq!(labels["job"], "nodegate");
        assert_eq!(labels["__address__"], address);
        assert_eq!(labels["__metrics_path__"], "/metrics");
    }
}
