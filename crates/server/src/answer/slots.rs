//! Limits how many requests of a kind are served at a time, in all and for each client: each holds a slot.

use nodegate_http::client_key;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The client that holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This node itself, such as its kubelet or a starting agent.
    Node,
    /// A pod of this node. The pods of a node share an IPv6 /64, so this is the whole address.
    Pod(IpAddr),
    /// Another client, or all clients of an IPv6 /64.
    Other(IpAddr),
}

impl Holder {
    pub(super) fn other(address: IpAddr) -> Self {
        Self::Other(client_key(address))
    }

    pub(super) fn is_other(self) -> bool {
        matches!(self, Self::Other(_))
    }
}

/// The slots in use, by their holders.
#[derive(Debug, Default)]
pub(super) struct Slots(Mutex<Vec<Holder>>);

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    holder: Holder,
}

impl Slots {
    /// Takes a slot; `None` if this holder has `share`, or if all of its kind have `most`: either this node and its
    /// pods, or all other clients.
    pub(super) fn take(self: &Arc<Self>, holder: Holder, most: usize, share: usize) -> Option<Slot> {
        let mut holders = self.holders();
        let alike = holders.iter().filter(|other| other.is_other() == holder.is_other()).count();
        let own = holders.iter().filter(|other| **other == holder).count();
        (alike < most && own < share).then(|| {
            holders.push(holder);
            Slot { slots: Arc::clone(self), holder }
        })
    }

    fn holders(&self) -> MutexGuard<'_, Vec<Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut holders = self.slots.holders();
        if let Some(at) = holders.iter().position(|other| *other == self.holder) {
            holders.swap_remove(at);
        }
    }
}
