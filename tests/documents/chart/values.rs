//! Every setting of the programs is a value of the chart, Helm rejects wrong values with a message, and the
//! other values work as values.yaml describes.

use super::{read, template};
use crate::manifests::{Json, Manifests};
use clap::{Command, CommandFactory};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the value's name of a flag: `onDemand` for `--on-demand`.
fn camel(flag: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let mut words = flag.split('-');
    words.next().unwrap().to_owned() + &words.map(capital).collect::<String>()
}

/// Returns the settings of a program, except those that the chart sets itself and those of modes that end at
/// once.
fn settings(program: &Command, own: &[&str]) -> BTreeSet<String> {
    let flags = program.get_arguments().filter(|arg| arg.get_env().is_some()).filter_map(clap::Arg::get_long);
    let flags: BTreeSet<_> = flags.collect();
    assert!(own.iter().all(|own| flags.contains(own)), "{own:?} are not among {flags:?}");
    flags.into_iter().filter(|flag| !own.contains(flag)).map(camel).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn agent_settings() -> BTreeSet<String> {
    settings(&nodegate_agent::Args::command(), &["node-name", "state-dir", "host-root", "host-signals"])
}

/// But for names, which are those of the release, and for files, which are cert-manager's.
fn gate_settings() -> BTreeSet<String> {
    let own = ["namespace", "name", "tls-cert-file", "tls-key-file", "client-ca-file"];
    settings(&nodegate_eviction_gate::Args::command(), &own)
}

#[test]
fn every_setting_of_the_programs_is_a_value_of_the_chart() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    assert_eq!(keys(schema.at("/properties/settings/properties")), agent_settings());
    let files = ["config", "template", "haproxy", "master-socket"];
    let accepted = settings(&nodegate_haproxy::Args::command(), &files);
    assert_eq!(keys(schema.at("/properties/haproxy/properties/settings/properties")), accepted);
    assert_eq!(keys(schema.at("/properties/evictionGate/properties/settings/properties")), gate_settings());
}

/// Returns a sample for each value that differs from its default.
fn samples() -> Value {
    json!({
        "listenPort": 25011, "listenAddress": "0.0.0.0", "agentCheckPort": 0, "allowFrom": ["10.0.0.0/24", "fd00::7"],
        "metricsAddr": "[::]:25004", "podNetworks": ["10.244.0.0/16"], "staleAfter": "30s", "onStale": "keep-drain", "onUnknown": "not-ready", "unknownAfter": "10m", "notReadyAfter": "10s",
        "drainOn": ["unschedulable", "taint:example.com/*", "annotation:example.com/out=yes", "lifecycle"], "shutdownGrace": "1m30s", "maxDrained": "20%", "poolSelector": "pool=web",
        "defaultChecks": ["node_ready", "kubelet"], "backgroundChecks": ["kubelet", "network"], "onDemand": "none",
        "checkSettings": ["apiserver:url=https://10.0.0.5:6443,exclude=etcd:etcd-readiness", "network:rise=3"], "watchService": ["ingress/router", "ingress/other"],
        "httpCheck": ["nginx=http://127.0.0.1:10254/healthz"], "tcpCheck": ["db=127.0.0.1:5432", "mq=127.0.0.1:5672"],
        "conditions": ["DiskPressure", "Mine=False"], "balancers": ["10.0.0.5"], "trafficPort": [80, 443],
        "ackFall": 5, "ackRise": 4, "ackInterval": "2s", "ackProbers": 2,
        "log": "debug", "logFormat": "json",
    })
}

/// Shows that the agent's parser accepts the value of each of the container's variables.
#[test]
fn the_agent_accepts_the_setting_of_each_value() {
    let samples = samples();
    assert_eq!(keys(&samples), agent_settings(), "a sample for each");
    let manifests = template(&json!({"settings": samples})).unwrap();
    let args = accepted(nodegate_agent::Args::command(), &variables(&manifests), "NODE_NAME");
    let port = |name| *args.get_one::<u16>(name).unwrap();
    assert_eq!((port("listen_port"), port("agent_check_port")), (25011, 0));
    let count = |name| args.get_raw(name).unwrap().count();
    assert_eq!(["check_settings", "watch_service", "tcp_check"].map(count), [2, 2, 2]);
    assert_eq!(args.get_one::<String>("background_checks").map(String::as_str), Some("kubelet,network"));
}

/// Returns what a program makes of these variables, all of which it must know. One of them has no value here.
fn accepted(program: Command, variables: &BTreeMap<String, String>, without: &str) -> clap::ArgMatches {
    let mut line = vec![program.get_name().to_owned()];
    for arg in program.get_arguments().filter(|arg| arg.get_env().is_some()) {
        let name = arg.get_env().unwrap().to_str().unwrap();
        if let (Some(value), false) = (variables.get(name), name == without) {
            line.push(format!("--{}={value}", arg.get_long().unwrap()));
        }
    }
    assert_eq!(line.len(), variables.len(), "each is a variable of the program: {variables:?}");
    program.try_get_matches_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

/// Returns the agent's variables with their values; a variable that comes from a field has an empty one.
pub(super) fn variables(manifests: &Manifests) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = &manifests.pod().every("/containers")[0];
    container
        .every("/env")
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

#[test]
fn an_empty_value_keeps_the_agents_default() {
    let empty = json!({"settings": {"onStale": "", "maxDrained": ""}});
    let names: Vec<_> = variables(&template(&empty).unwrap()).into_keys().collect();
    assert_eq!(names, ["NODEGATE_STATE_DIR", "NODE_NAME"]);
}

/// Wrong values, and the part of Helm's message that names them.
const REFUSED: &str = r#"
{"settings": {"onStale": "open"}} => at '/settings/onStale': value must be one of '', 'ready', 'keep-drain', 'not-ready'
{"settings": {"alowFrom": []}} => at '/settings': additional properties 'alowFrom' not allowed
{"settings": {"allowFrom": "10.0.0.0/8"}} => at '/settings/allowFrom': got string, want array
{"settings": {"allowFrom": ["example.com"]}} => at '/settings/allowFrom/0': 'example.com' does not match pattern
{"settings": {"listenPort": 70000}} => at '/settings/listenPort': maximum: got 70,000, want 65,535
{"settings": {"listenPort": "http"}} => at '/settings/listenPort': got string, want null or integer
{"settings": {"staleAfter": "15"}} => at '/settings/staleAfter': '15' does not match pattern
{"settings": {"metricsAddr": "25004"}} => at '/settings/metricsAddr': '25004' does not match pattern
{"settings": {"hostRoot": "/host"}} => at '/settings': additional properties 'hostRoot' not allowed
{"settings": {"drainOn": ["cordon"]}} => at '/settings/drainOn/0': 'cordon' does not match pattern
{"settings": {"maxDrained": "0%"}} => at '/settings/maxDrained': '0%' does not match pattern
{"image": {"digest": "latest"}} => at '/image/digest': 'latest' does not match pattern
{"image": {"repository": "a@sha256:b"}} => at '/image/repository': 'a@sha256:b' does not match pattern
{"services": {"rbac": "all"}} => at '/services/rbac': value must be one of 'namespaces', 'cluster', 'none'
{"runAsUser": 0} => at '/runAsUser': minimum: got 0, want 1
{"updateStrategy": {"type": "Recreate"}} => at '/updateStrategy/type': value must be one of 'RollingUpdate', 'OnDelete'
{"hostChecks": {"enabled": "yes"}} => at '/hostChecks/enabled': got string, want boolean
{"hostchecks": {"enabled": true}} => additional properties 'hostchecks' not allowed
{"haproxy": {"settings": {"lastResort": "some"}}} => at '/haproxy/settings/lastResort': value must be one of '', 'all', 'drained', 'none'
{"hostSignals": {"enabled": true}, "openshift": {"enabled": true}} => hostSignals.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath
{"hostChecks": {"enabled": true}, "openshift": {"enabled": true}} => hostChecks.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath
{"haproxy": {"enabled": true, "settings": {"listen": ""}}} => haproxy.settings.listen: takes an address and a port, e.g. [::]:25003
{"haproxy": {"enabled": true}, "openshift": {"enabled": true}} => haproxy.enabled and openshift.enabled do not go together
{"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}} => updateStrategy.rollingUpdate: one of maxSurge (10%) and maxUnavailable (1) must be 0
{"commonLabels": {"app.kubernetes.io/name": "x"}} => commonLabels: the chart itself sets the label app.kubernetes.io/name
{"commonLabels": {"team": "a"}, "podLabels": {"team": "b"}} => podLabels: the label team is in commonLabels, too
{"podAnnotations": {"kubectl.kubernetes.io/default-container": "x"}} => podAnnotations: the chart itself sets the annotation kubectl
{"settings": {"listenAddress": "127.0.0.1"}} => settings.listenAddress: takes an address that the kubelet reaches, which 127.0.0.1 is not
{"evictionGate": {"settings": {"listen": "[::1]:8443"}}} => evictionGate.settings.listen: takes an address that the kubelet reaches
{"settings": {"listenPort": 25002}} => settings.listenPort: port 25002 is also that of settings.agentCheckPort
{"fullnameOverride": "123"} => the objects' name "123": takes a-z, 0-9 and -, beginning with a letter
{"settings": null} => at '': missing property 'settings'
{"haproxy": {"settings": null}} => at '/haproxy': missing property 'settings'
"#;

#[test]
fn wrong_values_of_the_chart_are_rejected_with_a_message() {
    for row in REFUSED.trim().lines() {
        let (values, why) = row.split_once(" => ").unwrap();
        let values: Value = serde_json::from_str(values).unwrap();
        let said = template(&values).err().unwrap_or_else(|| panic!("{values} is taken"));
        assert!(said.contains(why), "{values}: {said}");
    }
}

#[test]
fn only_the_kubelets_probes_follow_listen_port() {
    let manifests =
        template(&json!({"settings": {"listenPort": 25011, "metricsAddr": "[::]:25004"}})).unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(manifests.pod().at(&format!("/containers/0/{probe}/httpGet/port")), 25011);
    }
    assert_eq!(manifests.pod().every("/containers")[0].get("ports"), None);
}

#[test]
fn the_chart_gives_haproxy_its_template_and_settings() {
    let manifests = template(&json!({"haproxy": {
        "enabled": true, "template": "global\n  maxconn 100\n", "syncResources": {},
        "settings": {"forward": ["a=1:2@b?c", "d=3:4"], "namespaces": ["a", "b"], "logFormat": "json", "listen": "0.0.0.0:25009"},
    }}))
    .unwrap();
    let template = manifests.the("ConfigMap", "nodegate-haproxy-template");
    assert_eq!(template.at("/data"), &json!({"haproxy.cfg.TEMPLATE": "global\n  maxconn 100\n"}));
    let pod = manifests.the("DaemonSet", "nodegate-haproxy").at("/spec/template/spec");
    let known = nodegate_haproxy::Args::command();
    let known: BTreeSet<_> = known.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let container = pod.at("/containers/1");
    let set: BTreeMap<_, _> =
        container.every("/env").iter().map(|v| (v["name"].as_str().unwrap(), &v["value"])).collect();
    assert!(set.keys().all(|name| known.contains(name)), "{set:?}");
    for (name, value) in [
        ("NODEGATE_HAPROXY_NAMESPACES", "a,b"),
        ("NODEGATE_HAPROXY_FORWARD", "a=1:2@b?c;d=3:4"),
        ("NODEGATE_HAPROXY_TEMPLATE", "/etc/nodegate-haproxy/haproxy.cfg.TEMPLATE"),
        ("NODEGATE_LOG_FORMAT", "json"),
    ] {
        assert_eq!(set[name], value);
    }
    assert_eq!(pod.at("/containers/1/readinessProbe/httpGet/port"), 25009);
}

/// By the variables of the container, as the program's own parser takes them.
#[test]
fn the_gate_takes_what_each_value_sets_and_what_it_must_know_of_the_agents() {
    let samples = json!({
        "evictWhen": "released", "hold": "annotated", "maxHold": "85s", "unknownHold": "20s",
        "drainOn": ["unschedulable", "label:example.com/out"],
        "agentPort": 25011, "listen": "[::]:26005", "healthListen": "[::]:26006", "log": "debug", "logFormat": "json",
    });
    assert_eq!(keys(&samples), gate_settings(), "a sample for each");
    let gate = |values: Value| {
        let manifests = template(&values).unwrap();
        let name = values["fullnameOverride"].as_str().unwrap_or("nodegate").to_owned() + "-eviction-gate";
        let container = manifests.the("Deployment", &name).at("/spec/template/spec/containers/0").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let set: BTreeMap<_, _> =
            container.every("/env").iter().map(|each| (text(&each["name"]), text(&each["value"]))).collect();
        (manifests, container, set)
    };
    let (manifests, container, set) = gate(json!({"evictionGate": {"enabled": true, "settings": samples}}));
    accepted(nodegate_eviction_gate::Args::command(), &set, "NODEGATE_GATE_NAMESPACE");
    assert_eq!(container.at("/readinessProbe/httpGet/port"), 26006);
    assert_eq!(manifests.the("Service", "nodegate-eviction-gate").at("/spec/ports/0/targetPort"), 26005);

    let agents = json!({"drainOn": ["deleting"], "listenPort": 25012});
    let (_, _, set) = gate(json!({"evictionGate": {"enabled": true}, "settings": agents}));
    assert_eq!(
        (set["NODEGATE_GATE_DRAIN_ON"].as_str(), set["NODEGATE_GATE_AGENT_PORT"].as_str()),
        ("deleting", "25012")
    );

    let values = json!({"fullnameOverride": "edge", "evictionGate": {"enabled": true, "tlsSecret": "gate-tls", "caBundle": "Q0E=",
            "clientCaSecret": "api-servers"}});
    let (manifests, container, set) = gate(values);
    assert_eq!(set["NODEGATE_GATE_NAME"], "edge-eviction-gate");
    assert_eq!(set["NODEGATE_GATE_CLIENT_CA_FILE"], "/client-ca/ca.crt");
    assert_eq!(container.at("/volumeMounts/1/mountPath"), "/client-ca");
    let webhook =
        manifests.the("ValidatingWebhookConfiguration", "edge-eviction-gate").at("/webhooks/0").clone();
    assert_eq!(webhook.at("/clientConfig/caBundle"), "Q0E=");
    let rights = manifests.the("ClusterRole", "edge-eviction-gate").at("/rules").to_string();
    assert!(!rights.contains("validatingwebhookconfigurations"), "{rights}");
    assert_eq!(set["NODEGATE_GATE_TLS_CERT_FILE"], "/tls/tls.crt");
    assert_eq!(container.at("/volumeMounts/0/mountPath"), "/tls");
    assert!(!manifests.names().iter().any(|name| name.starts_with("Secret ")), "cert-manager's");
}
