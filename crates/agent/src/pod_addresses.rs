//! The setting for the addresses of the node's pods, whose `preStop` hooks wait at `/wait`. `agent` passes it on.

use nodegate_local_checks::PodRoutes;
use nodegate_server::{Networks, PodSettings};
use std::sync::Arc;

/// The networks of the node's pods.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PodArgs {
    /// Networks of this node's pods, as in --allow-from, for the places of /wait. Usually not needed: the agent
    /// knows the Node's podCIDRs, and the addresses that the node routes to an interface of its pods
    #[arg(long, env = "NODEGATE_POD_NETWORKS", value_name = "LIST")]
    pod_networks: Option<Networks>,
}

impl PodArgs {
    /// Returns the settings of an agent in the host's network namespace.
    pub(crate) fn settings(self) -> PodSettings {
        let routes = Arc::new(PodRoutes::default());
        PodSettings {
            networks: self.pod_networks,
            routes: Some(Arc::new(move |address| {
                let routes = routes.clone();
                Box::pin(async move { routes.lead_to_pod(address).await })
            })),
        }
    }
}
