//! Sets of values for the chart, by lot: values at their edges, alone and together, a third of the sets with a wrong one.

use crate::{kinds, program};
use serde_json::{Value, json};

/// The place of a value; texts that the chart takes, and texts that it refuses, as JSON. `-` stands for none.
const EDGES: &str = r#"
createNamespace | true # false | "yes"
image.repository | "registry.example.com:5000/a/b" # "nodegate" # "123" | "a@b" # "A/b" # "" # "https://x/y"
image.tag | "v9" # "45" # "1e3" # "" | "a b" # ":x" # ".a"
image.digest | "sha256:0000000000000000000000000000000000000000000000000000000000000000" | "sha256:0" # "latest"
image.pullPolicy | "Always" # "Never" | "never" # ""
imagePullSecrets | [{"name": "a"}, {"name": "123"}] # [] | [{"name": ""}] # ["a"] # [{"name": "A"}]
nameOverride | "ready" # "a" # "nodegate-lb" | "A" # "-a" # "a.b"
fullnameOverride | "lb" # "n1-2" # "a234567890123456789012345678901234567890" | "123" # "true" # "1e3" # "a2345678901234567890123456789012345678901" # "a_b"
commonLabels | {"team": "edge", "a.b/c": "1e3"} # {"n": "123"} # {"e": ""} | {"a b": "x"} # {"a": "b c"} # {"app.kubernetes.io/name": "x"} # {"-a": "x"}
podLabels | {"tier": "x"} # {"y": "true"} | {"a/b/c": "d"} # {"x": "-"} # {"x": 1}
podAnnotations | {"a.b/c": "any: [text", "n": "123"} | {"a b": "x"} # {"x": 1} # {"kubectl.kubernetes.io/default-container": "x"}
extraEnv | [{"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}] # [{"name": "A", "value": "123"}] | [{"value": "x"}] # [{"name": "A"}, {"name": "A"}] # [{"name": "NODEGATE_X", "value": ""}] # [{"name": "1 A"}] # [{"name": "A", "value": 1}]
extraVolumes | [{"name": "x", "emptyDir": {}}] # [{"name": "123", "configMap": {"name": "a"}}] | [{"name": "state", "emptyDir": {}}] # [{"name": "A"}] # [{"emptyDir": {}}] # [{"name": "x"}, {"name": "x"}]
extraVolumeMounts | - | [{"name": "missing", "mountPath": "/x"}] # [{"name": "state", "mountPath": "x"}] # [{"name": "state", "mountPath": "/host/"}]
extraObjects | [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nodegate"}}] # ["{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-x', namespace: nodegate}}"] | [5] # "x"
serviceAccount | {"name": "123"} # {"name": "lb.a"} # {"create": false, "name": "lb"} # {"annotations": {"a.b/c": "x"}} | {"create": false} # {"name": "A"} # {"annotations": {"a b": "x"}}
rbac | {"create": false} # {"kubeletHealthz": true} | {"create": "no"} # {"x": 1}
hostChecks | {"enabled": true} # {"enabled": true, "supplementalGroups": []} # {"enabled": true, "supplementalGroups": [2147483647], "seLinuxOptions": {"type": "spc_t"}} | {"supplementalGroups": [-1]} # {"seLinuxOptions": {"typ": "x"}} # {"supplementalGroups": [2147483648]}
hostSignals.enabled | true | "true" # 1
services.rbac | "cluster" # "none" | "all" # ""
staticPods | {"rights": true} # {"rights": true, "manifest": true} | {"rights": 1}
openshift.enabled | true | "x"
flowSchema.enabled | true | 0
pluginUsers.enabled | true | "x"
networkPolicy | {"enabled": true} # {"enabled": true, "apiServers": [{"ipBlock": {"cidr": "10.0.0.0/28"}}], "metrics": [{"namespaceSelector": {}}]} | {"enabled": true, "apiServers": [{}]} # {"apiServers": [{"ipBlock": {"cidr": "10.0.0.0"}}]} # {"metrics": ["x"]}
resources | {} # {"limits": {"memory": "1Gi"}, "requests": {"cpu": 0}} # {"requests": {"cpu": "0.1", "memory": "64M"}} | {"limits": {"cpu": "x"}} # {"requests": {"memory": "65Mi"}} # {"limits": {"gpu": 1}} # {"cpu": 1} # {"limits": {"cpu": -1}}
nodeSelector | {} # {"a.b/c": "true", "n": "1"} | {"a": true} # {"a b": "x"}
tolerations | [] # [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}] # [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}] | [{}] # [{"operator": "exists"}] # [{"operator": "Exists", "value": "x"}] # [{"key": "a", "effect": "No"}] # [{"key": "a", "tolerationSeconds": 5}]
affinity | {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}} | {"node": {}} # []
priorityClassName | "" # "system-cluster-critical" | "A" # "a b"
runAsUser | 1 # 2147483647 | 0 # 2147483648 # "65521" # 1.5
updateStrategy | {"type": "OnDelete"} # {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}} # {"rollingUpdate": {"maxSurge": "100%"}} # {"rollingUpdate": {"maxSurge": null}} | {"rollingUpdate": {"maxUnavailable": "10%"}} # {"rollingUpdate": {"maxSurge": "0%"}} # {"rollingUpdate": {"maxSurge": "101%"}} # {"rollingUpdate": {"maxSurge": -1}} # {"type": "Recreate"} # {"rollingUpdate": {"max": 1}}
terminationGracePeriodSeconds | 301 # 2147483647 | 5 # 0 # -1 # 2147483648
startupSeconds | 21 # 2147483647 | 0 # 15 # 2147483648
haproxy.image.tag | "3.4-alpine" | "a b"
haproxy.template | "global\n  maxconn 100\n" # "  indented: [first\nline" # "{{ not }} a template" | 5
haproxy.nodeSelector | {"x": "1"} | {"x": 1}
haproxy.tolerations | [] | [{}]
haproxy.resources | {"limits": {"memory": "3Gi"}} | {"requests": {"memory": "3Gi"}}
haproxy.syncResources | {} | {"requests": {"memory": "257Mi"}}
evictionGate.replicas | 1 # 2147483647 | 0 # "2"
evictionGate.hostNetwork | true | "x"
evictionGate.tlsSecret | "gate-tls" # "123" | "A b"
evictionGate.caBundle | "" | "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=" # "%" # "Q0E="
evictionGate.clientCaSecret | "api-servers" # "1.2" | "A"
evictionGate.webhookAnnotations | {"cert-manager.io/inject-ca-from": "nodegate/gate"} | {"x": 1}
evictionGate.nodeSelector | {} # {"x": "true"} | {"x": true}
evictionGate.tolerations | [{"operator": "Exists"}] | [{"effect": "x", "operator": "Exists"}]
evictionGate.resources | {} | {"requests": {"memory": "1Gi"}}
x | - | 1 # null
"#;

/// Returns the set of this number, and the place of its wrong value if it has one.
pub(crate) fn set(number: u64) -> (Value, Option<String>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut edges: Vec<(String, Vec<Value>, Vec<Value>)> = Vec::new();
    for row in EDGES.trim().lines() {
        let [place, good, bad] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        let texts = |text: &str| {
            text.split(" # ")
                .filter(|text| *text != "-")
                .map(|text| serde_json::from_str(text).unwrap())
                .collect()
        };
        edges.push((place.to_owned(), texts(good), texts(bad)));
    }
    for program in program::all() {
        for (name, rule) in program.settings() {
            let kind = kinds::of(rule["takes"].as_str().unwrap());
            let written = |texts: &[String]| texts.iter().map(|text| program::written(text, &rule)).collect();
            edges.push((format!("{}.{name}", program.of), written(&kind.good), written(&kind.bad)));
        }
    }
    let mut values = json!({
        "haproxy": {"enabled": rng.bool()}, "evictionGate": {"enabled": rng.bool()}, "terminationGracePeriodSeconds": 400,
    });
    // From one value alone to a third of them: more contradict each other.
    let share = rng.f64() * 0.3;
    for (place, good, _) in &edges {
        if !good.is_empty() && rng.f64() < share {
            program::set(&mut values, place, rng.choice(good).unwrap().clone());
        }
    }
    if !number.is_multiple_of(3) {
        return (values, None);
    }
    let (place, _, bad) = rng.choice(&edges).unwrap();
    if let Some(bad) = rng.choice(bad) {
        program::set(&mut values, place, bad.clone());
    }
    (values, Some(place.clone()))
}
