//! The pods of an ingress, and what they do before they end. The rollouts and the shutdowns start them.

use nodegate_testbed::real_cluster::RealCluster;

/// The longest time that a hook gets.
const TIMEOUT: u32 = 120;

/// What a pod of the ingress does before it gets SIGTERM.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    None,
    Sleep(u32),
    Acknowledged,
}

impl Hook {
    fn lifecycle(self) -> String {
        match self {
            Self::None => "{}".to_owned(),
            Self::Sleep(seconds) => format!("{{preStop: {{sleep: {{seconds: {seconds}}}}}}}"),
            Self::Acknowledged => format!(
                "{{preStop: {{httpGet: {{host: 127.0.0.1, port: 25001, path: \"/wait?for=acknowledged&service=pool/ingress&timeout={TIMEOUT}\"}}}}}}"
            ),
        }
    }
}

/// Makes the image of [`pods`]. HAProxy ends at SIGTERM, and at SIGUSR1 after its last connection, which its own
/// image therefore asks for.
pub(crate) fn make_image(cluster: &RealCluster) {
    let image = "image --stop=SIGUSR1 ingress haproxy -db -f /configuration/haproxy.cfg";
    cluster.node_script(&image.split(' ').collect::<Vec<_>>());
}

/// The pods of a workload: a server that ends when its last connection has, as an ingress should.
pub(crate) fn pods(hook: Hook) -> String {
    format!(
        "
  selector: {{matchLabels: {{app: ingress}}}}
  template:
    metadata: {{labels: {{app: ingress}}}}
    spec:
      terminationGracePeriodSeconds: {}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: ingress}}}}}}
      containers:
      - name: ingress
        image: real-cluster/ingress:1
        readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
        lifecycle: {}
        volumeMounts: [{{name: configuration, mountPath: /configuration}}]
      volumes: [{{name: configuration, configMap: {{name: application}}}}]
",
        TIMEOUT + 30,
        hook.lifecycle()
    )
}

pub(crate) const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: pool}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: application, namespace: pool}
data:
  haproxy.cfg: |
    defaults
      mode http
      timeout connect 5s
      timeout client 10s
      timeout server 5s
      option idle-close-on-response
    frontend all
      bind :8080
      http-request return status 200 content-type text/plain string "from the pod"
"#;
