//! Limits the number of big answers in flight.

use nodegate_http::holder_of;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of big answers that are sent at a time.
pub(super) const MOST: usize = 8;

/// The maximum for one client or one IPv6 /64: a client that reads slowly leaves slots to others.
const MOST_OF_ONE: usize = 4;

/// The time that one answer may take. After it, the agent cuts off a client that reads a few bytes every few
/// seconds.
const SENT_WITHIN: Duration = Duration::from_secs(30);

/// The slots of big answers.
#[derive(Debug, Default)]
pub(super) struct ResponseSlots(Mutex<Vec<Holder>>);

/// The holder of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A client on this node's loopback. It has one extra slot, so that a starting agent can always ask the
    /// agent that it reslots.
    Loopback,
    Client(IpAddr),
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct ResponseSlot {
    slots: Arc<ResponseSlots>,
    holder: Holder,
    until: Instant,
}

impl ResponseSlots {
    /// Takes a slot, or returns `None` if this client must wait for one.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<ResponseSlot> {
        let mut taken = self.taken();
        let count = |holder| taken.iter().filter(|taken| **taken == holder).count();
        let extra = count(Holder::Loopback);
        let client_holder = Holder::Client(holder_of(client));
        let holder = if client.to_canonical().is_loopback() && extra == 0 {
            Holder::Loopback
        } else if taken.len() - extra < MOST && count(client_holder) < MOST_OF_ONE {
            client_holder
        } else {
            return None;
        };
        taken.push(holder);
        debug_assert!(taken.len() <= MOST + 1);
        let slots = Arc::clone(self);
        Some(ResponseSlot { slots, holder, until: nodegate_clock::now() + SENT_WITHIN })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseSlot {
    /// Returns true if the answer should have been sent by now.
    pub(super) fn is_overdue(&self) -> bool {
        nodegate_clock::now() > self.until
    }
}

impl Drop for ResponseSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        if let Some(at) = taken.iter().position(|taken| *taken == self.holder) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Arc<ResponseSlots>, client: &str) -> Option<ResponseSlot> {
        slots.take(client.parse().unwrap())
    }

    #[test]
    fn eight_are_sent_at_a_time_and_four_to_one_client() {
        let slots = Arc::<ResponseSlots>::default();
        let mut held: Vec<_> = (0..4).map(|_| take(&slots, "10.0.0.1").unwrap()).collect();
        assert!(take(&slots, "10.0.0.1").is_none() && take(&slots, "::ffff:10.0.0.1").is_none());
        held.extend((1..5).map(|host| take(&slots, &format!("fd00::{host}")).unwrap()));
        assert!(take(&slots, "fd00:0:0:1::1").is_none(), "all are taken");
        drop(held.pop());
        assert!(take(&slots, "10.0.0.1").is_none(), "it has four");
        assert!(take(&slots, "fd00:0:0:1::1").is_some());
    }

    #[test]
    fn a_successor_has_a_slot_of_its_own() {
        let slots = Arc::<ResponseSlots>::default();
        let held: Vec<_> = (1..=8).map(|host| take(&slots, &format!("10.0.0.{host}")).unwrap()).collect();
        assert!(take(&slots, "10.0.0.9").is_none());
        let successor = take(&slots, "127.0.0.1").unwrap();
        assert!(take(&slots, "::1").is_none(), "there is one");
        drop(successor);
        assert!(take(&slots, "::ffff:127.0.0.1").is_some());
        drop(held);
        assert!(slots.taken().is_empty());
    }
}
