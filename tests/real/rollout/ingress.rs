//! The pods of an ingress, and what they do before they end. The rollouts and the shutdowns start them.

use nodegate_testbed::real_cluster::RealCluster;

/// What a pod of the ingress does before it gets SIGTERM. The hook gets two minutes at most.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    None,
    Sleep(u32),
    Acknowledged,
}

impl Hook {
    fn lifecycle(self) -> String {
        let wait = "/wait?for=acknowledged&service=pool/ingress&timeout=120";
        match self {
            Self::None => "{}".to_owned(),
            Self::Sleep(seconds) => format!("{{preStop: {{sleep: {{seconds: {seconds}}}}}}}"),
            Self::Acknowledged => {
                format!("{{preStop: {{httpGet: {{host: 127.0.0.1, port: 25001, path: \"{wait}\"}}}}}}")
            }
        }
    }
}

/// Makes the image of [`workload`]. At SIGUSR1, for which it asks, HAProxy ends after its last connection.
pub(crate) fn make_image(cluster: &RealCluster) {
    let image = "image --stop=SIGUSR1 ingress haproxy -db -f /configuration/haproxy.cfg";
    cluster.node_script(&image.split(' ').collect::<Vec<_>>());
}

/// Returns the DaemonSet or Deployment of the ingress, with more lines of its `spec`.
pub(crate) fn workload(kind: &str, spec: &str, hook: Hook) -> String {
    let object = include_str!("../objects/ingress.yaml").replace("$kind", kind).replace("$spec", spec);
    object.replace("$lifecycle", &hook.lifecycle())
}

/// Returns a Service of the ingress with a port on each node.
pub(crate) fn service(node_port: u16) -> String {
    let ports = format!("[{{port: 80, targetPort: 8080, nodePort: {node_port}}}]");
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: ingress, namespace: pool}}\n\
         spec: {{type: NodePort, selector: {{app: ingress}}, ports: {ports}}}\n"
    )
}
