//! Limits the number of waiting requests.

use nodegate_http::holder_of;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of waiting requests from this node and its pods.
const MOST_OF_NODE: usize = 512;
/// The maximum for one pod. The hooks of its containers are few; the kubelet's own all come from the node.
const MOST_OF_POD: usize = 16;
/// The maximum number of other waiting requests.
const MOST_OF_OTHERS: usize = 16;
/// The maximum for one other client or one IPv6 /64.
const MOST_OF_ONE: usize = 4;

/// The client that holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This node itself, such as its kubelet.
    Node,
    /// A pod of this node. The pods of a node share an IPv6 /64, so this is the whole address.
    Pod(IpAddr),
    /// Another client, or all clients of an IPv6 /64.
    Other(IpAddr),
}

impl Holder {
    pub(super) fn other(address: IpAddr) -> Self {
        Self::Other(holder_of(address))
    }

    pub(super) fn is_other(self) -> bool {
        matches!(self, Self::Other(_))
    }
}

/// The places of waiting requests.
#[derive(Debug)]
pub(super) struct WaitPlaces(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    most_of_node: usize,
    most_of_others: usize,
    holders: Vec<Holder>,
}

/// A place, released when dropped.
#[derive(Debug)]
pub(super) struct WaitPlace {
    places: Arc<WaitPlaces>,
    holder: Holder,
}

impl Default for WaitPlaces {
    fn default() -> Self {
        let (most_of_node, most_of_others) = (MOST_OF_NODE, MOST_OF_OTHERS);
        Self(Mutex::new(Taken { most_of_node, most_of_others, holders: Vec::new() }))
    }
}

impl WaitPlaces {
    /// Lowers the numbers of places for a listener with fewer connections than the default, half of which
    /// may wait.
    pub(super) fn limit(&self, max_connections: usize) {
        let mut taken = self.taken();
        taken.most_of_node = taken.most_of_node.min(max_connections / 2);
        taken.most_of_others = taken.most_of_others.min(max_connections / 64);
    }

    /// Takes a place; `None` if there is none left for this client.
    pub(super) fn take(self: &Arc<Self>, holder: Holder) -> Option<WaitPlace> {
        let mut taken = self.taken();
        let alike = taken.holders.iter().filter(|other| other.is_other() == holder.is_other()).count();
        let own = taken.holders.iter().filter(|other| **other == holder).count();
        let (most, share) = match holder {
            Holder::Node => (taken.most_of_node, usize::MAX),
            Holder::Pod(_) => (taken.most_of_node, MOST_OF_POD),
            Holder::Other(_) => (taken.most_of_others, MOST_OF_ONE),
        };
        if alike >= most || own >= share {
            return None;
        }
        taken.holders.push(holder);
        debug_assert!(taken.holders.len() <= MOST_OF_NODE + MOST_OF_OTHERS);
        Some(WaitPlace { places: Arc::clone(self), holder })
    }

    /// Returns true if no request waits.
    pub(super) fn are_free(&self) -> bool {
        self.taken().holders.is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(at) = taken.holders.iter().position(|holder| *holder == self.holder) {
            taken.holders.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<WaitPlaces>, count: usize, holder: Holder) -> Vec<WaitPlace> {
        (0..count).map_while(|_| places.take(holder)).collect()
    }

    fn other(client: &str) -> Holder {
        Holder::other(client.parse().unwrap())
    }

    #[test]
    fn the_node_has_places_of_its_own_and_one_client_a_share_of_the_others() {
        let places = Arc::<WaitPlaces>::default();
        let own = take(&places, 600, Holder::Node);
        assert_eq!(own.len(), 512);
        let mut others: Vec<_> =
            ["10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3", "10.0.0.4"]
                .map(|client| take(&places, 5, other(client)))
                .into();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0, 4, 0]);
        drop(others.remove(1));
        assert_eq!(take(&places, 5, other("10.0.0.4")).len(), 4);
        drop((own, others));
        assert!(places.are_free());
        places.limit(64);
        assert_eq!(
            [take(&places, 99, Holder::Node).len(), take(&places, 99, other("10.0.0.1")).len()],
            [32, 1]
        );
    }

    #[test]
    fn one_pod_leaves_places_to_the_next_and_to_the_kubelet() {
        let places = Arc::<WaitPlaces>::default();
        let pod = |n: u8| Holder::Pod([0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into());
        let greedy = take(&places, 512, pod(1));
        assert_eq!([greedy.len(), take(&places, 40, pod(2)).len()], [16, 16]);
        let hooks = take(&places, 250, Holder::Node);
        assert_eq!(hooks.len(), 250);
        let pods: Vec<_> = (2..40).flat_map(|n| take(&places, 16, pod(n))).collect();
        assert_eq!(greedy.len() + hooks.len() + pods.len(), 512);
    }
}
