//! Chooses the connection to close when the table of connections is full.

use crate::networks::client_key;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// One search of a client's connections returns one in this many. A new search for each eviction would cost
/// the client that fills the table nothing, but the agent a thousand entries for every connection.
const SEARCHED_FRACTION: usize = 16;

/// The number of connections up to which a client is not singled out, even if all others hold fewer. A
/// balancer has a kept connection for each of its backends, and a flood may come from a thousand addresses.
pub(crate) const FAIR: usize = 8;

/// The connections of each client. All addresses of an IPv6 /64 are one client.
#[derive(Default)]
pub(crate) struct Holders {
    keys: BTreeMap<IpAddr, BTreeSet<u64>>,
    counts: BTreeSet<(usize, IpAddr)>,
}

impl Holders {
    /// Adds a connection, and returns the client that it counts for.
    pub(crate) fn add(&mut self, client: IpAddr, key: u64) -> IpAddr {
        let client = client_key(client);
        let keys = self.keys.entry(client).or_default();
        self.counts.remove(&(keys.len(), client));
        keys.insert(key);
        self.counts.insert((keys.len(), client));
        client
    }

    /// Removes a connection of a client that [`add`](Self::add) returned.
    pub(crate) fn remove(&mut self, client: IpAddr, key: u64) {
        let Some(keys) = self.keys.get_mut(&client) else { return };
        self.counts.remove(&(keys.len(), client));
        keys.remove(&key);
        if keys.is_empty() {
            self.keys.remove(&client);
        } else {
            self.counts.insert((keys.len(), client));
        }
    }

    /// Returns the number and the keys of each client's connections, the largest number first.
    pub(crate) fn largest_first(&self) -> impl Iterator<Item = (usize, &BTreeSet<u64>)> {
        self.counts.iter().rev().filter_map(|(count, client)| Some((*count, self.keys.get(client)?)))
    }

    /// Returns the oldest connection of the client that holds most if it must be closed, although it is busy,
    /// for a client that holds less than half as many.
    pub(crate) fn yields_to(&self, newcomer: IpAddr) -> Option<u64> {
        let own = self.keys.get(&client_key(newcomer)).map_or(0, BTreeSet::len);
        let (count, keys) = self.largest_first().next()?;
        if count > FAIR && (own + 1) * 2 < count { keys.first().copied() } else { None }
    }

    /// Returns true if this client holds at least half as many as the client that holds most, or if no client
    /// holds many.
    pub(crate) fn is_among_the_largest(&self, client: IpAddr) -> bool {
        let largest = self.counts.last().map_or(0, |(count, _)| *count);
        largest <= FAIR || self.keys.get(&client).is_some_and(|keys| keys.len() * 2 >= largest)
    }
}

/// A connection without activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Idle {
    /// A number that grows with each activity of all connections: the smallest was idle for longest.
    pub(crate) order: u64,
    pub(crate) key: u64,
}

/// Returns the connections to close, of those that never had an answer and of those that had one: the ones idle for
/// longest, the first to close last. If three quarters are of one kind, only these are closed. So a flood of either
/// kind can't push out the other, and balancers with new connections and with kept ones both stay.
pub(crate) fn oldest(new: Vec<Idle>, kept: Vec<Idle>) -> Vec<Idle> {
    let all = new.len() + kept.len();
    let mut oldest = match (4 * new.len() >= 3 * all, 4 * kept.len() >= 3 * all) {
        (true, _) => new,
        (_, true) => kept,
        _ => [new, kept].concat(),
    };
    oldest.sort_unstable();
    oldest.truncate((all / SEARCHED_FRACTION).max(1));
    oldest.reverse();
    oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(range: std::ops::Range<u64>) -> Vec<Idle> {
        range.map(|order| Idle { order, key: order }).rev().collect()
    }

    fn first_keys(new: Vec<Idle>, kept: Vec<Idle>) -> Vec<u64> {
        oldest(new, kept).iter().rev().map(|idle| idle.key).collect()
    }

    #[test]
    fn a_sixteenth_is_found_the_oldest_first() {
        assert_eq!(first_keys(idle(0..32), idle(100..132)), [0, 1, 2, 3]);
        assert_eq!(first_keys(idle(100..132), idle(0..32)), [0, 1, 2, 3]);
        assert_eq!(first_keys(idle(5..6), Vec::new()), [5]);
        assert_eq!(first_keys(Vec::new(), Vec::new()), [0; 0]);
    }
}
