//! The rules of the Pod Security Standard `restricted`, with those of `baseline` that it includes. Names and
//! texts are those of <https://kubernetes.io/docs/concepts/security/pod-security-standards/> as of Kubernetes
//! 1.34, shortened; in an API server, `pod-security-admission/policy` of Kubernetes enforces them.

use super::support::Json;
use serde_json::{Value, json};

pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Returns true if a pod's spec and one of its containers keep the rule.
    pub(super) holds: fn(pod: &Value, container: &Value) -> bool,
}

/// The rules. Where `restricted` allows a list of values, some of these allow none that nodegate does not
/// need: they are stricter than the standard, never laxer.
pub(super) const RULES: [Rule; 16] = [
    Rule {
        name: "HostProcess",
        text: "Privileged access to the Windows host is disallowed. windowsOptions.hostProcess: undefined or false",
        holds: |pod, container| {
            let of = |it: &Value| it.pointer("/securityContext/windowsOptions/hostProcess").is_some();
            !of(pod) && !of(container)
        },
    },
    Rule {
        name: "Host Namespaces",
        text: "Sharing the host namespaces must be disallowed. hostNetwork, hostPID, hostIPC: undefined or false",
        holds: |pod, _| ["hostNetwork", "hostPID", "hostIPC"].iter().all(|key| pod[key] != true),
    },
    Rule {
        name: "Privileged Containers",
        text: "Privileged Pods disable most security mechanisms and must be disallowed. privileged: undefined or false",
        holds: |_, container| container["securityContext"]["privileged"] != true,
    },
    Rule {
        name: "Capabilities: none added",
        text: "Containers are only permitted to add back NET_BIND_SERVICE. (Nothing here needs it.)",
        holds: |_, container| container.every("/securityContext/capabilities/add").is_empty(),
    },
    Rule {
        name: "HostPath Volumes",
        text: "HostPath volumes must be forbidden. volumes[*].hostPath: undefined",
        holds: |pod, _| pod.every("/volumes").iter().all(|volume| volume.get("hostPath").is_none()),
    },
    Rule {
        name: "Host Ports",
        text: "HostPorts should be disallowed entirely (recommended). ports[*].hostPort: undefined or 0",
        holds: |_, container| container.every("/ports").iter().all(|port| port.get("hostPort").is_none()),
    },
    Rule {
        name: "Host Probes",
        text: "The Host field in probes and lifecycle hooks must be disallowed. httpGet.host, tcpSocket.host: undefined",
        holds: |_, container| {
            let asks = [
                "/startupProbe",
                "/livenessProbe",
                "/readinessProbe",
                "/lifecycle/postStart",
                "/lifecycle/preStop",
            ];
            let host = |ask: &str, by: &str| container.pointer(&format!("{ask}/{by}/host")).is_some();
            !asks.iter().any(|ask| host(ask, "httpGet") || host(ask, "tcpSocket"))
        },
    },
    Rule {
        name: "AppArmor",
        text: "Overriding or disabling the default profile is prevented. appArmorProfile.type: undefined, RuntimeDefault or Localhost",
        holds: |pod, container| {
            [pod, container].iter().all(|it| it["securityContext"]["appArmorProfile"]["type"] != "Unconfined")
        },
    },
    Rule {
        name: "SELinux",
        text: "Setting the SELinux type is restricted, and setting a custom user or role option is forbidden",
        holds: |pod, container| {
            [pod, container].iter().all(|it| it["securityContext"].get("seLinuxOptions").is_none())
        },
    },
    Rule {
        name: "/proc Mount Type",
        text: "The default /proc masks are set up to reduce attack surface, and should be required. procMount: undefined or Default",
        holds: |_, container| container["securityContext"].get("procMount").is_none(),
    },
    Rule {
        name: "Sysctls",
        text: "Sysctls should be disallowed except for an allowed safe subset. (Nothing here needs one.)",
        holds: |pod, _| pod.every("/securityContext/sysctls").is_empty(),
    },
    Rule {
        name: "Volume Types",
        text: "The restricted policy only permits configMap, csi, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, projected, secret",
        holds: |pod, _| {
            let allowed =
                "name configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret";
            let known = |key: &String| allowed.split(' ').any(|kind| kind == key);
            pod.every("/volumes").iter().all(|volume| volume.as_object().is_some_and(|v| v.keys().all(known)))
        },
    },
    Rule {
        name: "Privilege Escalation",
        text: "Privilege escalation (such as via set-user-ID file mode) should not be allowed. allowPrivilegeEscalation: false",
        holds: |_, container| container["securityContext"]["allowPrivilegeEscalation"] == false,
    },
    Rule {
        name: "Running as Non-root",
        text: "Containers must be required to run as non-root users, and must not set runAsUser to 0. runAsNonRoot: true",
        holds: |pod, container| {
            let says = |it: &Value| it["securityContext"].get("runAsNonRoot").cloned();
            says(container).or_else(|| says(pod)) == Some(json!(true))
                && [pod, container].iter().all(|it| it["securityContext"]["runAsUser"] != 0)
        },
    },
    Rule {
        name: "Seccomp",
        text: "Seccomp profile must be explicitly set to one of the allowed values. seccompProfile.type: RuntimeDefault or Localhost",
        holds: |pod, container| {
            let says =
                |it: &Value| it["securityContext"]["seccompProfile"]["type"].as_str().map(str::to_owned);
            let kind = says(container).or_else(|| says(pod));
            kind.is_some_and(|kind| kind == "RuntimeDefault" || kind == "Localhost")
        },
    },
    Rule {
        name: "Capabilities: all dropped",
        text: "Containers must drop ALL capabilities. capabilities.drop: any list that includes ALL",
        holds: |_, container| container.every("/securityContext/capabilities/drop").contains(&json!("ALL")),
    },
];
