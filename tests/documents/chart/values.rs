//! Every setting of the programs is a value, wrong ones are refused in words, and the rest does what values.yaml says.

use super::{read, template};
use crate::manifests::{Json, Manifests};
use clap::Command;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// `--on-demand` as a value: `onDemand`.
fn camel(flag: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let mut words = flag.split('-');
    words.next().unwrap().to_owned() + &words.map(capital).collect::<String>()
}

/// What can be set, but for what the chart sets itself and modes in which nothing runs on.
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
    settings(&nodegate_agent::command(), &["node-name", "state-dir", "host-root"])
}

#[test]
fn every_setting_of_the_programs_is_a_value() {
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let known = agent_settings();
    assert_eq!(keys(values.at("/settings")), known, "values.yaml");
    assert_eq!(keys(schema.at("/properties/settings/properties")), known, "values.schema.json");
    let files = [
        "config",
        "template",
        "state-dir",
        "state-file",
        "before",
        "prefix",
        "pause-file",
        "haproxy",
        "master-socket",
        "runtime-socket",
        "reload-command",
    ];
    let companion = settings(&nodegate_haproxy::run::command(), &files);
    assert_eq!(keys(schema.at("/properties/haproxy/properties/settings/properties")), companion);
}

/// A value for each, unlike its default.
fn samples() -> Value {
    json!({
        "listenPort": 25011, "listenAddress": "0.0.0.0", "agentCheckPort": 0, "allowFrom": ["10.0.0.0/24", "fd00::7"],
        "acceptProxy": true, "metricsAddr": "[::]:25004", "maxConnections": 100_000, "staleAfter": "30s", "onStale": "keep-drain", "onUnknown": "not-ready", "unknownAfter": "10m",
        "drainOn": ["unschedulable", "taint:example.com/*", "annotation:example.com/out=yes", "lifecycle"], "startupGrace": "2s", "shutdownGrace": "1m30s",
        "defaultChecks": ["node_ready", "kubelet"], "backgroundChecks": ["kubelet", "network"], "onDemand": "none",
        "checkSettings": ["kubelet:interval=2s,fall=2", "network:rise=3"], "watchService": ["ingress/router", "ingress/other"],
        "httpCheck": ["nginx=http://127.0.0.1:10254/healthz"], "tcpCheck": ["db=127.0.0.1:5432", "mq=127.0.0.1:5672"],
        "conditions": ["DiskPressure", "Mine=False"], "balancers": ["10.0.0.5"], "trafficPort": [80, 443],
        "toldFall": 5, "toldRise": 4, "toldInterval": "2s", "toldProbers": 2,
        "log": "debug", "logFormat": "json",
    })
}

/// By the variables of the container, as the program's own parser takes them.
#[test]
fn the_agent_takes_what_each_value_sets() {
    let samples = samples();
    assert_eq!(keys(&samples), agent_settings(), "a sample for each");
    let manifests = template(&json!({"settings": samples})).unwrap();
    let variables = variables(&manifests);
    let command = nodegate_agent::command();
    let mut line = vec!["nodegate".to_owned()];
    for arg in command.get_arguments().filter(|arg| arg.get_env().is_some()) {
        let name = arg.get_env().unwrap().to_str().unwrap();
        if let (Some(value), false) = (variables.get(name), name == "NODE_NAME") {
            line.push(format!("--{}={value}", arg.get_long().unwrap()));
        }
    }
    assert_eq!(line.len(), variables.len(), "each is a variable of the agent: {variables:?}");
    let args = command.try_get_matches_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    let port = |name| *args.get_one::<u16>(name).unwrap();
    assert_eq!((port("listen_port"), port("agent_check_port")), (25011, 0));
    assert_eq!(args.get_one::<usize>("max_connections"), Some(&100_000));
    let count = |name| args.get_raw(name).unwrap().count();
    assert_eq!(["check_settings", "watch_service", "tcp_check"].map(count), [2, 2, 2], "{line:?}");
    assert_eq!(args.get_one::<String>("background_checks").map(String::as_str), Some("kubelet,network"));
}

/// The agent's variables, with their values; empty where they come from a field.
fn variables(manifests: &Manifests) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = &manifests.pod().every("/containers")[0];
    container
        .every("/env")
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

#[test]
fn what_is_left_empty_keeps_the_agents_default() {
    let names: Vec<_> = variables(&template(&json!({})).unwrap()).into_keys().collect();
    assert_eq!(names, ["NODEGATE_STATE_DIR", "NODE_NAME"]);
}

#[test]
fn wrong_values_are_refused_in_words() {
    let refused = [
        (
            json!({"settings": {"onStale": "open"}}),
            "at '/settings/onStale': value must be one of '', 'ready', 'keep-drain', 'not-ready'",
        ),
        (
            json!({"settings": {"alowFrom": []}}),
            "at '/settings': additional properties 'alowFrom' not allowed",
        ),
        (
            json!({"settings": {"allowFrom": "10.0.0.0/8"}}),
            "at '/settings/allowFrom': got string, want array",
        ),
        (
            json!({"settings": {"allowFrom": ["example.com"]}}),
            "at '/settings/allowFrom/0': 'example.com' does not match pattern",
        ),
        (
            json!({"settings": {"listenPort": 70000}}),
            "at '/settings/listenPort': maximum: got 70,000, want 65,535",
        ),
        (
            json!({"settings": {"listenPort": "http"}}),
            "at '/settings/listenPort': got string, want null or integer",
        ),
        (json!({"settings": {"staleAfter": "15"}}), "at '/settings/staleAfter': '15' does not match pattern"),
        (
            json!({"settings": {"metricsAddr": "25004"}}),
            "at '/settings/metricsAddr': '25004' does not match pattern",
        ),
        (
            json!({"settings": {"hostRoot": "/host"}}),
            "at '/settings': additional properties 'hostRoot' not allowed",
        ),
        (
            json!({"settings": {"drainOn": ["cordon"]}}),
            "at '/settings/drainOn/0': 'cordon' does not match pattern",
        ),
        (json!({"image": {"digest": "latest"}}), "at '/image/digest': 'latest' does not match pattern"),
        (
            json!({"image": {"repository": "a@sha256:b"}}),
            "at '/image/repository': 'a@sha256:b' does not match pattern",
        ),
        (
            json!({"services": {"rbac": "all"}}),
            "at '/services/rbac': value must be one of 'namespaces', 'cluster', 'none'",
        ),
        (json!({"runAsUser": 0}), "at '/runAsUser': minimum: got 0, want 1"),
        (json!({"maxSurge": 0}), "at '/maxSurge': minimum: got 0, want 1"),
        (json!({"hostChecks": {"enabled": "yes"}}), "at '/hostChecks/enabled': got string, want boolean"),
        (json!({"hostchecks": {"enabled": true}}), "additional properties 'hostchecks' not allowed"),
        (
            json!({"haproxy": {"settings": {"publish": "some"}}}),
            "at '/haproxy/settings/publish': value must be one of '', 'load-balancers', 'all', 'annotated'",
        ),
        (
            json!({"hostChecks": {"enabled": true}, "openshift": {"enabled": true}}),
            "hostChecks.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath",
        ),
        (
            json!({"haproxy": {"enabled": true, "settings": {"listen": ""}}}),
            "haproxy.settings.listen: takes an address and a port, e.g. [::]:25003",
        ),
    ];
    for (values, why) in refused {
        let said = template(&values).err().unwrap_or_else(|| panic!("{values} is taken"));
        assert!(said.contains(why), "{values}: {said}");
    }
}

#[test]
fn probes_follow_the_port_and_nothing_else_does() {
    let manifests =
        template(&json!({"settings": {"listenPort": 25011, "metricsAddr": "[::]:25004"}})).unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(manifests.pod().at(&format!("/containers/0/{probe}/httpGet/port")), 25011);
    }
    assert_eq!(manifests.pod().every("/containers")[0].get("ports"), None);
}

/// Which is narrower than the component's, that can't know the namespaces.
#[test]
fn watched_services_are_read_in_their_namespaces_alone() {
    let values =
        |rbac: &str| json!({"settings": {"watchService": ["a/x", "b/y", "a/z"]}, "services": {"rbac": rbac}});
    let rights = |values: &Value| -> Vec<String> {
        let names = template(values).unwrap().names().into_iter();
        names.filter(|name| name.ends_with("-services")).collect()
    };
    let expected =
        ["a", "b"].map(|n| ["Role", "RoleBinding"].map(|kind| format!("{kind} {n}/nodegate-services")));
    let (mut found, mut expected) = (rights(&values("namespaces")), expected.concat());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(rights(&values("none")), Vec::<String>::new());
    assert_eq!(rights(&json!({})), Vec::<String>::new());
}

#[test]
fn a_second_release_has_names_of_its_own() {
    let values = json!({
        "fullnameOverride": "edge", "createNamespace": true, "prometheus": {"enabled": true}, "openshift": {"enabled": true},
        "settings": {"watchService": ["a/x"]}, "haproxy": {"enabled": true}, "pluginUsers": {"enabled": true},
        "flowSchema": {"enabled": true},
    });
    let manifests = super::template_with(&values, &["--namespace", "lb"]).unwrap();
    for name in manifests.names() {
        let name = name.split_once('/').unwrap().1;
        assert!(name == "lb" || name.starts_with("edge"), "{name}");
    }
    let pod = manifests.the("DaemonSet", "edge").at("/spec/template/spec");
    assert_eq!(pod.at("/serviceAccountName"), "edge");
}

#[test]
fn what_a_pod_can_have_besides() {
    let manifests = template(&json!({
        "image": {"tag": "9", "pullPolicy": "Always"}, "imagePullSecrets": [{"name": "registry"}],
        "extraArgs": ["--log=debug"], "extraEnv": [{"name": "NODEGATE_ON_STALE", "value": "keep-drain"}],
        "hostChecks": {"enabled": true, "supplementalGroups": [], "seLinuxOptions": {"type": "spc_t"}},
        "podLabels": {"team": "edge"}, "podAnnotations": {"a": "b"}, "nodeSelector": {"pool": "edge"}, "tolerations": [],
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "", "maxSurge": 1, "runAsUser": 70000,
        "startupSeconds": 60, "terminationGracePeriodSeconds": 20,
    }))
    .unwrap();
    let daemon_set = manifests.the("DaemonSet", "nodegate");
    assert_eq!(daemon_set.at("/spec/updateStrategy/rollingUpdate/maxSurge"), 1);
    assert_eq!(daemon_set.at("/spec/template/metadata/labels/team"), "edge");
    assert_eq!(daemon_set.at("/spec/template/metadata/annotations/a"), "b");
    let pod = manifests.pod();
    assert_eq!(pod.at("/imagePullSecrets"), &json!([{"name": "registry"}]));
    assert_eq!((pod.at("/nodeSelector/pool"), pod.get("tolerations")), (&json!("edge"), None));
    assert_eq!((pod.get("priorityClassName"), pod.at("/affinity")), (None, &json!({"nodeAffinity": {}})));
    let context = pod.at("/securityContext");
    assert_eq!((context.at("/runAsUser"), context.get("supplementalGroups")), (&json!(70000), None));
    assert_eq!(context.at("/seLinuxOptions/type"), "spc_t");
    let container = &pod.every("/containers")[0];
    assert_eq!(
        (container.at("/image"), container.at("/imagePullPolicy")),
        (&json!("ghcr.io/nodegate/nodegate:9"), &json!("Always"))
    );
    assert_eq!(container.at("/args"), &json!(["--log=debug"]));
    assert_eq!(container.every("/env").last().unwrap().at("/value"), "keep-drain");
    assert_eq!(container.at("/startupProbe/failureThreshold"), 60);
    assert_eq!(pod.at("/terminationGracePeriodSeconds"), 20);
}

#[test]
fn haproxy_gets_its_template_and_settings() {
    let manifests = template(&json!({"haproxy": {
        "enabled": true, "template": "global\n  maxconn 100\n", "syncResources": {},
        "settings": {"publish": "annotated", "namespaces": ["a", "b"], "logFormat": "json", "listen": "127.0.0.1:25009"},
    }}))
    .unwrap();
    let template = manifests.the("ConfigMap", "nodegate-haproxy-template");
    assert_eq!(template.at("/data"), &json!({"haproxy.cfg.TEMPLATE": "global\n  maxconn 100\n"}));
    let pod = manifests.the("DaemonSet", "nodegate-haproxy").at("/spec/template/spec");
    let known = nodegate_haproxy::run::command();
    let known: BTreeSet<_> = known.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    for container in [pod.at("/initContainers/0"), pod.at("/containers/1")] {
        let set: BTreeMap<_, _> =
            container.every("/env").iter().map(|v| (v["name"].as_str().unwrap(), &v["value"])).collect();
        assert!(set.keys().all(|name| known.contains(name)), "{set:?}");
        assert_eq!(set["NODEGATE_HAPROXY_NAMESPACES"], "a,b");
        assert_eq!(set["NODEGATE_HAPROXY_TEMPLATE"], "/etc/nodegate-haproxy/haproxy.cfg.TEMPLATE");
        assert_eq!(
            (set["NODEGATE_HAPROXY_PUBLISH"], set["NODEGATE_LOG_FORMAT"]),
            (&json!("annotated"), &json!("json"))
        );
    }
    assert_eq!(pod.at("/containers/1/readinessProbe/httpGet/port"), 25009);
}
