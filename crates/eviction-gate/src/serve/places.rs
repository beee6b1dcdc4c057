//! Places for connections, so that no client can take all of them.

use super::connection::{Connection, Phase};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client with so few connections is not singled out, even if all others have fewer. An API server has some idle ones.
const FAIR: usize = 8;

/// The places of a port. All addresses of an IPv6 /64 are one client.
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    count: usize,
    next: u64,
    clients: HashMap<IpAddr, BTreeMap<u64, Arc<Connection>>>,
}

/// A connection's place. Drop gives it back.
pub(super) struct Place {
    places: Arc<Places>,
    client: IpAddr,
    number: u64,
    pub(super) connection: Arc<Connection>,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes a place. If all are taken, this ends a connection of the client that has most; `None` if that would be
    /// unfair.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let client = client_of(from);
        let mut taken = self.taken();
        if taken.count >= self.most {
            let (other, number) = taken.least_wanted(client)?;
            if let Some(connection) = taken.remove(other, number) {
                connection.close();
            }
        }
        let (number, connection) = (taken.next, Arc::new(Connection::new()));
        taken.next += 1;
        taken.count += 1;
        taken.clients.entry(client).or_default().insert(number, connection.clone());
        Some(Place { places: self.clone(), client, number, connection })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Returns the connection to end for another one of this client: of the client that has most, or of all if none has
    /// many; there the first phase, and the oldest. A request that is being answered ends only for a client that has less
    /// than half as many connections.
    fn least_wanted(&self, newcomer: IpAddr) -> Option<(IpAddr, u64)> {
        let most = self.clients.values().map(BTreeMap::len).max()?;
        let singled_out = |count: usize| most <= FAIR || count == most;
        let clients = self.clients.iter().filter(|(_, connections)| singled_out(connections.len()));
        let all = clients.flat_map(|(client, connections)| {
            connections.iter().map(|(number, connection)| (connection.phase(), *number, *client))
        });
        let (phase, number, client) = all.min()?;
        let own = self.clients.get(&newcomer).map_or(0, BTreeMap::len);
        (phase != Phase::Answering || (own + 1) * 2 < most).then_some((client, number))
    }

    fn remove(&mut self, client: IpAddr, number: u64) -> Option<Arc<Connection>> {
        let connections = self.clients.get_mut(&client)?;
        let connection = connections.remove(&number)?;
        if connections.is_empty() {
            self.clients.remove(&client);
        }
        self.count -= 1;
        Some(connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(self.client, self.number);
    }
}

fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_ended(place: &Place) -> bool {
        !place.places.taken().clients.get(&place.client).is_some_and(|all| all.contains_key(&place.number))
    }

    #[test]
    fn one_client_has_all_places_until_another_one_comes() {
        let places = Places::new(100);
        let stranger: Vec<Place> = (0..100).map(|_| places.take(at(1)).unwrap()).collect();
        stranger[0].connection.enter(Phase::Idle, None);
        stranger[1].connection.enter(Phase::Answering, None);
        let server: Vec<Place> = (0..40).map(|_| places.take(at(2)).unwrap()).collect();
        assert!(server.iter().all(|place| !is_ended(place)));
        assert_eq!(stranger.iter().filter(|place| is_ended(place)).count(), 40);
        assert!(!is_ended(&stranger[0]) && !is_ended(&stranger[1]), "the others first");
        // The stranger's next ones cost its own.
        let again: Vec<Place> = (0..100).filter_map(|_| places.take(at(1))).collect();
        assert_eq!(again.len(), 100);
        assert!(server.iter().all(|place| !is_ended(place)));
        drop((stranger, server, again));
        assert_eq!(places.taken().count, 0);
        assert!(places.taken().clients.is_empty());
    }

    #[test]
    fn requests_that_are_being_answered_yield_only_to_a_client_with_far_fewer() {
        let places = Places::new(20);
        let busy: Vec<Place> = (0..20)
            .map(|_| {
                let place = places.take(at(1)).unwrap();
                place.connection.enter(Phase::Answering, None);
                place
            })
            .collect();
        assert!(places.take(at(1)).is_none(), "no place for one more of its own");
        let other: Vec<Place> = (0..20).map_while(|_| places.take(at(2))).collect();
        assert!((5..=10).contains(&other.len()), "{}", other.len());
        assert!(is_ended(&busy[0]) && !is_ended(&busy[19]));
    }

    #[test]
    fn among_clients_with_few_connections_the_oldest_new_one_yields() {
        let places = Places::new(50);
        let server = places.take(at(0)).unwrap();
        server.connection.enter(Phase::Idle, None);
        let strangers: Vec<Place> = (1..50).map(|last| places.take(at(last)).unwrap()).collect();
        let more: Vec<Place> = (100..110).map(|last| places.take(at(last)).unwrap()).collect();
        assert!(!is_ended(&server), "it has been answered");
        assert!(strangers[..10].iter().all(is_ended) && !is_ended(&strangers[10]));
        drop(more);
    }

    #[test]
    fn a_network_is_one_client() {
        assert_eq!(client_of("2001:db8::1".parse().unwrap()), client_of("2001:db8::ffff:1".parse().unwrap()));
        assert_ne!(client_of("2001:db8:0:1::1".parse().unwrap()), client_of("2001:db8::1".parse().unwrap()));
        assert_eq!(client_of("::ffff:10.0.0.1".parse().unwrap()), at(1));
    }
}
