//! The clients of `/wait`: this node, its pods, and others.

use super::App;
use super::wait_slots::Holder;
use ipnet::IpNet;
use nodegate_http::{Client, Networks};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// Finds the node's pods by its routes.
pub trait FindPods: Send + Sync {
    /// Returns true if the address is that of a pod on this node.
    fn is_pod(&self, address: IpAddr) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// The settings by which the node's pods are known, besides the Node's `spec.podCIDRs`.
#[derive(Default)]
pub struct PodSettings {
    /// The networks of the node's pods.
    pub networks: Option<Networks>,
    /// Finds all other pods.
    pub routes: Option<Arc<dyn FindPods>>,
}

impl App {
    /// Sets how pods are known; only the first call has an effect.
    pub fn set_pods(&self, settings: PodSettings) {
        let _ = self.waiters.pods.set(settings);
    }

    pub(super) async fn holder(&self, client: Client) -> Holder {
        if client.on_this_node {
            return Holder::Node;
        }
        let address = client.address.to_canonical();
        if self.is_pod(address) {
            return Holder::Pod(address);
        }
        match self.waiters.pods.get().and_then(|pods| pods.routes.as_ref()) {
            Some(routes) if routes.is_pod(address).await => Holder::Pod(address),
            _ => Holder::other(address),
        }
    }

    /// Returns true if the address belongs to one of the node's pods, as far as the Node or a setting says.
    fn is_pod(&self, address: IpAddr) -> bool {
        let published = self.board.published();
        let of_node = published.state.node.facts().map_or(&[][..], |facts| &facts.pod_cidrs);
        let named = self.waiters.pods.get().and_then(|pods| pods.networks.as_ref());
        of_node.iter().any(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)))
            || named.is_some_and(|networks| !networks.is_everybody() && networks.contains(address))
    }
}
