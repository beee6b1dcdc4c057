//! The table of all served resources. Discovery does not advertise any other resource.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub group: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub short: &'static [&'static str],
    /// The subresources besides the object itself.
    pub sub: &'static [&'static str],
    /// The field selectors besides `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
}

impl Resource {
    /// Returns `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    /// Returns true if the status has its own subresource and other writes keep it unchanged.
    pub(crate) fn has_status(&self) -> bool {
        self.sub.contains(&"status")
    }
}

const BASE: Resource =
    Resource { group: "", plural: "", kind: "", namespaced: true, short: &[], sub: &[], fields: &[] };

/// All served resources, in discovery's order.
#[rustfmt::skip]
pub(crate) static RESOURCES: &[Resource] = &[
    Resource { plural: "configmaps", kind: "ConfigMap", short: &["cm"], ..BASE },
    // kube-proxy 1.20 writes no rules without them.
    Resource { plural: "endpoints", kind: "Endpoints", short: &["ep"], ..BASE },
    Resource {
        plural: "events", kind: "Event", short: &["ev"],
        fields: &["involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "type"],
        ..BASE
    },
    Resource { plural: "namespaces", kind: "Namespace", namespaced: false, short: &["ns"], sub: &["status"], fields: &["status.phase"], ..BASE },
    Resource { plural: "nodes", kind: "Node", namespaced: false, short: &["no"], sub: &["status"], fields: &["spec.unschedulable"], ..BASE },
    Resource {
        plural: "pods", kind: "Pod", short: &["po"], sub: &["eviction", "proxy", "status"],
        fields: &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"],
        ..BASE
    },
    Resource { plural: "secrets", kind: "Secret", fields: &["type"], ..BASE },
    Resource { plural: "serviceaccounts", kind: "ServiceAccount", short: &["sa"], ..BASE },
    Resource { plural: "services", kind: "Service", short: &["svc"], sub: &["status"], fields: &["spec.clusterIP", "spec.type"], ..BASE },
    Resource { group: "apps", plural: "daemonsets", kind: "DaemonSet", short: &["ds"], sub: &["status"], ..BASE },
    Resource { group: RBAC, plural: "clusterrolebindings", kind: "ClusterRoleBinding", namespaced: false, ..BASE },
    Resource { group: RBAC, plural: "clusterroles", kind: "ClusterRole", namespaced: false, ..BASE },
    Resource { group: RBAC, plural: "rolebindings", kind: "RoleBinding", ..BASE },
    Resource { group: RBAC, plural: "roles", kind: "Role", ..BASE },
    Resource { group: "coordination.k8s.io", plural: "leases", kind: "Lease", ..BASE },
    Resource { group: "discovery.k8s.io", plural: "endpointslices", kind: "EndpointSlice", ..BASE },
    Resource { group: ADMISSION, plural: "validatingwebhookconfigurations", kind: "ValidatingWebhookConfiguration", namespaced: false, ..BASE },
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The groups in discovery's order, the core group first.
pub(crate) static GROUPS: &[&str] =
    &["", "apps", "policy", RBAC, ADMISSION, "coordination.k8s.io", "discovery.k8s.io"];

pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.plural == plural && r.group == group && version == "v1")
}

pub(crate) fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
}

pub(crate) fn nodes() -> &'static Resource {
    by_plural("nodes")
}

/// Returns a resource by its plural name alone. Each plural occurs once in the table.
pub(crate) fn by_plural(plural: &str) -> &'static Resource {
    RESOURCES.iter().find(|r| r.plural == plural).unwrap_or_else(|| unreachable!("{plural} is not served"))
}
