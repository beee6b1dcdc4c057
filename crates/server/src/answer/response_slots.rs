//! Limits the number of big answers in flight.

use super::slots::{Slot, Slots, held_by};
use nodegate_http::holder_of;
use std::net::IpAddr;
use std::sync::Arc;
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
pub(super) struct ResponseSlots(Arc<Slots<Holder>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A client on this node's loopback. It has one extra slot, so that a starting agent can always ask the
    /// agent that it replaces.
    Loopback,
    Client(IpAddr),
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct ResponseSlot {
    _slot: Slot<Holder>,
    until: Instant,
}

impl ResponseSlots {
    /// Takes a slot, or returns `None` if this client must wait for one.
    pub(super) fn take(&self, client: IpAddr) -> Option<ResponseSlot> {
        let slot = self.0.take(|taken| {
            let extra = held_by(taken, Holder::Loopback);
            let holder = Holder::Client(holder_of(client));
            let is_free = taken.len() - extra < MOST && held_by(taken, holder) < MOST_OF_ONE;
            match () {
                () if client.to_canonical().is_loopback() && extra == 0 => Some(Holder::Loopback),
                () if is_free => Some(holder),
                () => None,
            }
        })?;
        Some(ResponseSlot { _slot: slot, until: nodegate_clock::now() + SENT_WITHIN })
    }
}

impl ResponseSlot {
    /// Returns true if the answer should have been sent by now.
    pub(super) fn is_overdue(&self) -> bool {
        nodegate_clock::now() > self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &ResponseSlots, client: &str) -> Option<ResponseSlot> {
        slots.take(client.parse().unwrap())
    }

    #[test]
    fn eight_are_sent_at_a_time_and_four_to_one_client() {
        let slots = ResponseSlots::default();
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
        let slots = ResponseSlots::default();
        let held: Vec<_> = (1..=8).map(|host| take(&slots, &format!("10.0.0.{host}")).unwrap()).collect();
        assert!(take(&slots, "10.0.0.9").is_none());
        let successor = take(&slots, "127.0.0.1").unwrap();
        assert!(take(&slots, "::1").is_none(), "there is one");
        drop(successor);
        assert!(take(&slots, "::ffff:127.0.0.1").is_some());
        drop(held);
        assert!(slots.0.are_free());
    }
}
