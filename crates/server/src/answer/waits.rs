//! The requests of `/wait`: how many may wait, and the reading that all of them share. `wait` answers them.

use super::slots::{Holder, Slot, Slots};
use crate::reading::{Reader, Reading};
use futures::future::BoxFuture;
use nodegate_http::Networks;
use nodegate_readiness::Moment;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// The maximum for the node and its pods: most of the places of known clients, which leaves some to balancers.
const MAX_OF_NODE: usize = 160;
/// The maximum for one pod. The hooks of its containers are few; the kubelet's own all come from the node.
const MAX_OF_POD: usize = 16;
/// The maximum number of other waiting requests.
const MAX_OF_OTHERS: usize = 16;
/// The maximum for one other client or one IPv6 /64.
const MAX_EACH: usize = 4;

/// The settings by which the node's pods are known, besides the Node's `spec.podCIDRs`.
#[derive(Default)]
pub struct PodSettings {
    /// The networks of the node's pods.
    pub networks: Option<Networks>,
    /// Tells by the node's routes whether an address is that of a pod.
    pub routes: Option<Arc<dyn Fn(IpAddr) -> BoxFuture<'static, bool> + Send + Sync>>,
}

/// A reading, and the time at which it began.
pub(super) type Judged = (Moment, Arc<Reading>);

/// The waiting requests, and the latest reading, by which all of them are judged.
pub(crate) struct Waits {
    pub(super) reader: Arc<Reader>,
    closing: AtomicBool,
    slots: Arc<Slots>,
    /// The number of connections of the smallest listener.
    connections: AtomicUsize,
    pub(super) pods: PodSettings,
    /// `None` while no request waits.
    pub(super) judged: watch::Sender<Option<Judged>>,
    pub(super) arrived: Notify,
}

impl Waits {
    pub(super) fn new(reader: Arc<Reader>, pods: PodSettings) -> Self {
        let (slots, judged, arrived, closing) = Default::default();
        let connections = usize::MAX.into();
        Self { reader, closing, slots, connections, pods, judged, arrived }
    }

    /// Ends the waiting requests with the next judgement.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Lowers the numbers of slots to fit a listener's connections.
    pub(super) fn limit(&self, max_connections: usize) {
        self.connections.fetch_min(max_connections, Ordering::Relaxed);
    }

    pub(super) fn take(&self, holder: Holder) -> Option<Slot> {
        let connections = self.connections.load(Ordering::Relaxed);
        let of_node = MAX_OF_NODE.min(connections / 16 * 5);
        match holder {
            Holder::Node => self.slots.take(holder, of_node, usize::MAX),
            Holder::Pod(_) => self.slots.take(holder, of_node, MAX_OF_POD),
            Holder::Other(_) => self.slots.take(holder, MAX_OF_OTHERS.min(connections / 32), MAX_EACH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use nodegate_readiness::{Board, Catalog, Policy};

    fn waits() -> Waits {
        let board = Board::new(None, Policy::default(), Catalog::default(), &[], Box::new(|_| {}));
        Waits::new(App::of(board).reader.clone(), PodSettings::default())
    }

    fn take(waits: &Waits, count: usize, holder: Holder) -> Vec<Slot> {
        (0..count).map_while(|_| waits.take(holder)).collect()
    }

    fn other(client: &str) -> Holder {
        Holder::other(client.parse().unwrap())
    }

    #[test]
    fn the_node_has_slots_of_its_own_and_one_client_a_share_of_the_others() {
        let waits = waits();
        let own = take(&waits, 600, Holder::Node);
        assert_eq!(own.len(), 160);
        let mut others: Vec<_> =
            ["10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3", "10.0.0.4"]
                .map(|client| take(&waits, 5, other(client)))
                .into();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0, 4, 0]);
        drop(others.remove(1));
        assert_eq!(take(&waits, 5, other("10.0.0.4")).len(), 4);
        drop((own, others));
        waits.limit(64);
        let [own, others] = [Holder::Node, other("10.0.0.1")].map(|holder| take(&waits, 99, holder).len());
        assert_eq!([own, others], [20, 2]);
    }

    #[test]
    fn one_pod_leaves_slots_to_the_next_and_to_the_kubelet() {
        let waits = waits();
        let pod = |n: u8| Holder::Pod([0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into());
        let greedy = take(&waits, 512, pod(1));
        assert_eq!([greedy.len(), take(&waits, 40, pod(2)).len()], [16, 16]);
        let hooks = take(&waits, 100, Holder::Node);
        let pods: Vec<_> = (2..40).flat_map(|n| take(&waits, 16, pod(n))).collect();
        assert_eq!([hooks.len(), greedy.len() + hooks.len() + pods.len()], [100, 160]);
    }
}
