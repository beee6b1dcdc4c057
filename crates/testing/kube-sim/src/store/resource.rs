//! The table of all served resources. Discovery does not advertise any other resource.

/// One resource of one API group.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "one column each of a table")]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural, as in paths.
    pub plural: &'static str,
    /// The singular.
    pub singular: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// True if its objects have namespaces.
    pub namespaced: bool,
    /// The short names, e.g. `no`.
    pub short: &'static [&'static str],
    /// True if `kubectl get all` shows it.
    pub in_all: bool,
    /// The subresources besides the object itself.
    pub sub: &'static [&'static str],
    /// The `storageVersionHash` that a real API server computes.
    pub hash: &'static str,
    /// The field selectors besides `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
    /// True if a deletion answers with the deleted object rather than a Status.
    pub returns_deleted: bool,
}

impl Resource {
    /// Returns `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the verbs in discovery.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self.plural {
            // Namespaces have no deletecollection on a real API server, either.
            "namespaces" => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    /// Returns true if the status has its own subresource and other writes keep it unchanged.
    pub(crate) fn has_status(&self) -> bool {
        self.sub.contains(&"status")
    }

    /// Returns the subject of an error about an object of this resource.
    pub(crate) fn subject<'a>(&'static self, name: &'a str) -> crate::store::status::Subject<'a> {
        crate::store::status::Subject { group: self.group, resource: self.plural, name }
    }
}

const BASE: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    short: &[],
    in_all: false,
    sub: &[],
    hash: "",
    fields: &[],
    returns_deleted: false,
};

/// All served resources, in discovery's order.
#[rustfmt::skip]
pub(crate) static RESOURCES: &[Resource] = &[
    Resource { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], hash: "qFsyl6wFWjQ=", ..BASE },
    Resource { plural: "endpoints", singular: "endpoints", kind: "Endpoints", short: &["ep"], hash: "fWeeMqaN/OA=", ..BASE },
    Resource {
        plural: "events", singular: "event", kind: "Event", short: &["ev"], hash: "r2yiGXH7wu8=",
        fields: &["involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "type"],
        ..BASE
    },
    Resource { plural: "namespaces", singular: "namespace", kind: "Namespace", namespaced: false, short: &["ns"], sub: &["status"], hash: "Q3oi5N2YM8M=", fields: &["status.phase"], returns_deleted: true, ..BASE },
    Resource { plural: "nodes", singular: "node", kind: "Node", namespaced: false, short: &["no"], sub: &["status"], hash: "XwShjMxG9Fs=", fields: &["spec.unschedulable"], ..BASE },
    Resource {
        plural: "pods", singular: "pod", kind: "Pod", short: &["po"], in_all: true, sub: &["eviction", "proxy", "status"], hash: "xPOwRZ+Yhw8=",
        fields: &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"],
        returns_deleted: true, ..BASE
    },
    Resource { plural: "secrets", singular: "secret", kind: "Secret", hash: "S6u1pOWzb84=", fields: &["type"], ..BASE },
    Resource { plural: "serviceaccounts", singular: "serviceaccount", kind: "ServiceAccount", short: &["sa"], hash: "pbx9ZvyFpBE=", returns_deleted: true, ..BASE },
    Resource { plural: "services", singular: "service", kind: "Service", short: &["svc"], in_all: true, sub: &["status"], hash: "0/CO1lhkEBI=", fields: &["spec.clusterIP", "spec.type"], returns_deleted: true, ..BASE },
    Resource { group: "apps", plural: "daemonsets", singular: "daemonset", kind: "DaemonSet", short: &["ds"], in_all: true, sub: &["status"], hash: "dd7pWHUlMKQ=", ..BASE },
    Resource { group: "apps", plural: "deployments", singular: "deployment", kind: "Deployment", short: &["deploy"], in_all: true, sub: &["status"], hash: "8aSe+NMegvE=", ..BASE },
    Resource { group: "apps", plural: "replicasets", singular: "replicaset", kind: "ReplicaSet", short: &["rs"], in_all: true, sub: &["status"], hash: "P1RzHs8/mWQ=", ..BASE },
    Resource { group: "apps", plural: "statefulsets", singular: "statefulset", kind: "StatefulSet", short: &["sts"], in_all: true, sub: &["status"], hash: "H+vl74LkKdo=", ..BASE },
    Resource { group: "policy", plural: "poddisruptionbudgets", singular: "poddisruptionbudget", kind: "PodDisruptionBudget", short: &["pdb"], sub: &["status"], hash: "EVWiDmWqyJw=", ..BASE },
    Resource { group: RBAC, plural: "clusterrolebindings", singular: "clusterrolebinding", kind: "ClusterRoleBinding", namespaced: false, hash: "48tpQ8gZHFc=", ..BASE },
    Resource { group: RBAC, plural: "clusterroles", singular: "clusterrole", kind: "ClusterRole", namespaced: false, hash: "bYE5ZWDrJ44=", ..BASE },
    Resource { group: RBAC, plural: "rolebindings", singular: "rolebinding", kind: "RoleBinding", hash: "eGsCzGH6b1g=", ..BASE },
    Resource { group: RBAC, plural: "roles", singular: "role", kind: "Role", hash: "7FuwZcIIItM=", ..BASE },
    Resource { group: "coordination.k8s.io", plural: "leases", singular: "lease", kind: "Lease", hash: "gqkMMb/YqFM=", ..BASE },
    Resource { group: "discovery.k8s.io", plural: "endpointslices", singular: "endpointslice", kind: "EndpointSlice", hash: "qgS0xkrxYAI=", ..BASE },
    Resource { group: ADMISSION, plural: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration", kind: "ValidatingWebhookConfiguration", namespaced: false, hash: "P9NhrezfnWE=", ..BASE },
    Resource { group: FLOW_CONTROL, plural: "flowschemas", singular: "flowschema", kind: "FlowSchema", namespaced: false, sub: &["status"], ..BASE },
    Resource { group: OPERATOR, plural: "podmonitors", singular: "podmonitor", kind: "PodMonitor", short: &["pmon"], ..BASE },
    Resource { group: OPERATOR, plural: "prometheusrules", singular: "prometheusrule", kind: "PrometheusRule", short: &["promrule"], ..BASE },
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
/// The API group that the Prometheus operator adds to a cluster.
const OPERATOR: &str = "monitoring.coreos.com";

/// The groups in discovery's order, the core group first.
pub(crate) static GROUPS: &[&str] = &[
    "",
    "apps",
    "policy",
    RBAC,
    ADMISSION,
    "coordination.k8s.io",
    "discovery.k8s.io",
    FLOW_CONTROL,
    OPERATOR,
];

/// Finds a resource by its path.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// Finds a resource by the apiVersion and kind of an object.
pub(crate) fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
}

/// Returns the nodes resource.
pub(crate) fn nodes() -> &'static Resource {
    by_plural("nodes")
}

/// Returns a resource by its plural name alone. Each plural occurs once in the table.
pub(crate) fn by_plural(plural: &str) -> &'static Resource {
    RESOURCES.iter().find(|r| r.plural == plural).unwrap_or(&BASE_STATIC)
}

static BASE_STATIC: Resource = BASE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_unique_and_groups_are_listed() {
        for resource in RESOURCES {
            assert_eq!(RESOURCES.iter().filter(|r| r.plural == resource.plural).count(), 1);
            assert!(GROUPS.contains(&resource.group), "{}", resource.group);
        }
    }
}
