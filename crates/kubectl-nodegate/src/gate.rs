//! The eviction gate as its replicas and the API server show it, for the fleet and `check`.

use crate::cluster::Cluster;
use crate::error::Error;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde::Serialize;

/// The name of the webhook in the gate's configuration.
const WEBHOOK: &str = "eviction-gate.nodegate.io";
/// The label of the gate's pods in the manifests.
const GATE_LABEL: &str = "app.kubernetes.io/name=nodegate-eviction-gate";
/// The port of the gate's metrics in the manifests.
const HEALTH_PORT: u16 = 25_006;
/// The most replicas that are queried.
const REPLICAS: usize = 4;

/// The gate of a cluster. `None` means not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Gate {
    /// Whether API servers can verify it.
    pub(crate) has_certificate: bool,
    /// Whether API servers ask it about evictions, as a replica has seen.
    pub(crate) asked: Option<bool>,
    /// The number of pods whose eviction waits.
    pub(crate) held: Option<u64>,
    /// Why no replica has answered.
    pub(crate) error: Option<String>,
}

impl Gate {
    /// Returns the gate; `None` if the cluster has none.
    pub(crate) async fn look(cluster: &Cluster) -> Result<Option<Self>, Error> {
        let webhook = |configuration: ValidatingWebhookConfiguration| {
            configuration.webhooks.into_iter().flatten().find(|webhook| webhook.name == WEBHOOK)
        };
        let webhooks = cluster.all("can't list ValidatingWebhookConfigurations", None, webhook).await?;
        let Some(webhook) = webhooks.into_iter().flatten().next() else { return Ok(None) };
        let config = webhook.client_config;
        let namespace =
            config.service.map_or_else(|| cluster.args.namespace.clone(), |service| service.namespace);
        let has_certificate = config.ca_bundle.is_some_and(|bundle| !bundle.0.is_empty());
        let mut gate = Self { has_certificate, ..Self::default() };
        match cluster.pods(&namespace, GATE_LABEL, None).await {
            Ok(pods) => gate.ask(cluster, &namespace, pods).await,
            Err(error) => gate.error = Some(error.why),
        }
        Ok(Some(gate))
    }

    /// Returns the gate, if it is known within the time that an agent may take.
    pub(crate) async fn glance(cluster: &Cluster) -> Option<Self> {
        tokio::time::timeout(cluster.args.agent_timeout, Self::look(cluster)).await.ok()?.ok()?
    }

    /// Reads the metrics of the replicas. Each counts the evictions that came to it.
    async fn ask(&mut self, cluster: &Cluster, namespace: &str, pods: Vec<String>) {
        self.error = pods.is_empty().then(|| format!("no pod of it in the namespace {namespace}"));
        for pod in pods.into_iter().take(REPLICAS) {
            match cluster.ask_pod(namespace, &pod, HEALTH_PORT, "/metrics").await {
                Ok(reply) if reply.status == 200 => {
                    let metrics = String::from_utf8_lossy(&reply.body);
                    let passed = gauge(&metrics, "nodegate_gate_self_check_passed").map(|value| value > 0);
                    self.asked = passed.max(self.asked);
                    self.held = gauge(&metrics, "nodegate_gate_held_pods").max(self.held);
                }
                Ok(reply) => self.error = Some(format!("the pod {pod} answered HTTP {}", reply.status)),
                Err(error) => self.error = Some(format!("the pod {pod}: {error}")),
            }
        }
        if self.asked.is_some() {
            self.error = None;
        }
    }

    /// Returns the gate in words.
    pub(crate) fn in_words(&self) -> String {
        let asked = match self.asked {
            Some(true) => "asked",
            Some(false) => "NOT asked by the API server",
            None => "not known whether it is asked",
        };
        let held = match self.held {
            None | Some(0) => String::new(),
            Some(1) => ", holds 1 eviction".to_owned(),
            Some(more) => format!(", holds {more} evictions"),
        };
        format!("{asked}{held}")
    }
}

/// Returns the value of a metric without labels.
fn gauge(metrics: &str, name: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let metrics =
            "# HELP nodegate_gate_held_pods x\nnodegate_gate_held_pods_total 9\nnodegate_gate_held_pods 2\n";
        assert_eq!(gauge(metrics, "nodegate_gate_held_pods"), Some(2));
        assert_eq!(gauge(metrics, "nodegate_gate_self_check_passed"), None);
    }
}
