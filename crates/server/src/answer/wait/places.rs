//! Limits the number of waiting requests.

use nodegate_http::holder_of;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of waiting requests from this node and its pods.
const MOST_OF_NODE: usize = 512;
/// The maximum number of other waiting requests.
const MOST_OF_OTHERS: usize = 16;
/// The maximum for one other client or one IPv6 /64.
const MOST_OF_ONE: usize = 4;

/// The places of waiting requests.
#[derive(Debug)]
pub(super) struct WaitPlaces(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    most_of_node: usize,
    most_of_others: usize,
    of_node: usize,
    others: Vec<IpAddr>,
}

/// A place, released when dropped.
#[derive(Debug)]
pub(super) struct WaitPlace {
    places: Arc<WaitPlaces>,
    /// The client; `None` for this node and its pods.
    other: Option<IpAddr>,
}

impl Default for WaitPlaces {
    fn default() -> Self {
        let (most_of_node, most_of_others) = (MOST_OF_NODE, MOST_OF_OTHERS);
        Self(Mutex::new(Taken { most_of_node, most_of_others, of_node: 0, others: Vec::new() }))
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

    /// Takes a place for a request of this node or its pods (`None`) or of another client. Returns `None` if
    /// there is none left.
    pub(super) fn take(self: &Arc<Self>, other: Option<IpAddr>) -> Option<WaitPlace> {
        let other = other.map(holder_of);
        let mut taken = self.taken();
        match other {
            None if taken.of_node < taken.most_of_node => taken.of_node += 1,
            Some(client)
                if taken.others.len() < taken.most_of_others
                    && taken.others.iter().filter(|holder| **holder == client).count() < MOST_OF_ONE =>
            {
                taken.others.push(client);
            }
            _ => return None,
        }
        Some(WaitPlace { places: Arc::clone(self), other })
    }

    /// Returns true if no request waits.
    pub(super) fn are_free(&self) -> bool {
        let taken = self.taken();
        taken.of_node == 0 && taken.others.is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match self.other {
            None => taken.of_node = taken.of_node.saturating_sub(1),
            Some(client) => {
                if let Some(at) = taken.others.iter().position(|holder| *holder == client) {
                    taken.others.swap_remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<WaitPlaces>, count: usize, other: Option<&str>) -> Vec<WaitPlace> {
        let other = other.map(|client| client.parse().unwrap());
        (0..count).map_while(|_| places.take(other)).collect()
    }

    #[test]
    fn the_node_has_places_of_its_own_and_one_client_a_share_of_the_others() {
        let places = Arc::<WaitPlaces>::default();
        let own = take(&places, 600, None);
        assert_eq!(own.len(), 512);
        let mut others: Vec<_> =
            ["10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3", "10.0.0.4"]
                .map(|client| take(&places, 5, Some(client)))
                .into();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0, 4, 0]);
        drop(others.remove(1));
        assert_eq!(take(&places, 5, Some("10.0.0.4")).len(), 4);
        drop((own, others));
        assert!(places.are_free());
        places.limit(64);
        assert_eq!([take(&places, 99, None).len(), take(&places, 99, Some("10.0.0.1")).len()], [32, 1]);
    }
}
