//! Limits the number of waiting requests.

use crate::answer::slots::{Slot, Slots, held_by};
use nodegate_http::holder_of;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MOST_OF_NODE: usize = 512;
/// The maximum for one pod. The hooks of its containers are few; the kubelet's own all come from the node.
const MOST_OF_POD: usize = 16;
/// The maximum number of other waiting requests.
const MOST_OF_OTHERS: usize = 16;
/// The maximum for one other client or one IPv6 /64.
const MOST_OF_ONE: usize = 4;

/// The client that holds a slot.
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

#[derive(Debug)]
pub(super) struct WaitSlots {
    slots: Arc<Slots<Holder>>,
    most_of_node: AtomicUsize,
    most_of_others: AtomicUsize,
}

impl Default for WaitSlots {
    fn default() -> Self {
        let (most_of_node, most_of_others) = (MOST_OF_NODE.into(), MOST_OF_OTHERS.into());
        Self { slots: Arc::default(), most_of_node, most_of_others }
    }
}

impl WaitSlots {
    /// Lowers the numbers of slots for a listener with fewer connections than the default, half of which
    /// may wait.
    pub(super) fn limit(&self, max_connections: usize) {
        self.most_of_node.fetch_min(max_connections / 2, Ordering::Relaxed);
        self.most_of_others.fetch_min(max_connections / 64, Ordering::Relaxed);
    }

    /// Takes a slot; `None` if there is none left for this client.
    pub(super) fn take(&self, holder: Holder) -> Option<Slot<Holder>> {
        let (most, share) = match holder {
            Holder::Node => (&self.most_of_node, usize::MAX),
            Holder::Pod(_) => (&self.most_of_node, MOST_OF_POD),
            Holder::Other(_) => (&self.most_of_others, MOST_OF_ONE),
        };
        self.slots.take(|taken| {
            let alike = taken.iter().filter(|other| other.is_other() == holder.is_other()).count();
            let is_free = alike < most.load(Ordering::Relaxed) && held_by(taken, holder) < share;
            is_free.then_some(holder)
        })
    }

    /// Returns true if no request waits.
    pub(super) fn are_free(&self) -> bool {
        self.slots.are_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &WaitSlots, count: usize, holder: Holder) -> Vec<Slot<Holder>> {
        (0..count).map_while(|_| slots.take(holder)).collect()
    }

    fn other(client: &str) -> Holder {
        Holder::other(client.parse().unwrap())
    }

    #[test]
    fn the_node_has_slots_of_its_own_and_one_client_a_share_of_the_others() {
        let slots = WaitSlots::default();
        let own = take(&slots, 600, Holder::Node);
        assert_eq!(own.len(), 512);
        let mut others: Vec<_> =
            ["10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3", "10.0.0.4"]
                .map(|client| take(&slots, 5, other(client)))
                .into();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0, 4, 0]);
        drop(others.remove(1));
        assert_eq!(take(&slots, 5, other("10.0.0.4")).len(), 4);
        drop((own, others));
        assert!(slots.are_free());
        slots.limit(64);
        assert_eq!(
            [take(&slots, 99, Holder::Node).len(), take(&slots, 99, other("10.0.0.1")).len()],
            [32, 1]
        );
    }

    #[test]
    fn one_pod_leaves_slots_to_the_next_and_to_the_kubelet() {
        let slots = WaitSlots::default();
        let pod = |n: u8| Holder::Pod([0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into());
        let greedy = take(&slots, 512, pod(1));
        assert_eq!([greedy.len(), take(&slots, 40, pod(2)).len()], [16, 16]);
        let hooks = take(&slots, 250, Holder::Node);
        assert_eq!(hooks.len(), 250);
        let pods: Vec<_> = (2..40).flat_map(|n| take(&slots, 16, pod(n))).collect();
        assert_eq!(greedy.len() + hooks.len() + pods.len(), 512);
    }
}
