//! Ports that stay reserved for a while after their Services are gone. A Service that is deleted and
//! recreated finds its own port free.

use crate::plan::desired::Desired;
use crate::plan::facts::{Facts, HeldPort};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time for which a port stays reserved, in seconds.
pub const HOLD: i64 = 300;
/// The maximum number of ports that are tracked.
const MAX_HELD: usize = 10_000;

/// The current owners of ports, and recent ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(BTreeMap<HeldPort, Option<i64>>);

/// A port and its owner, for the next run of nodegate-haproxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    #[serde(flatten)]
    port: HeldPort,
    /// The end of the reservation, in seconds since 1970. `None` while the Service exists.
    until: Option<i64>,
}

impl Holds {
    /// Starts from the ports that an earlier run knew.
    pub fn new(known: impl IntoIterator<Item = Hold>) -> Self {
        Self(known.into_iter().take(MAX_HELD).map(|hold| (hold.port, hold.until)).collect())
    }

    /// Returns all ports for the next run.
    pub fn all(&self) -> Vec<Hold> {
        self.0.iter().map(|(port, until)| Hold { port: port.clone(), until: *until }).collect()
    }

    /// Returns the ports of Services that are gone, including those that are gone only since these facts.
    pub fn reserved(&self, facts: &Facts) -> Vec<HeldPort> {
        let reserved = self.0.iter().filter(|(port, until)| until.is_some() || is_gone(port, facts));
        reserved.map(|(port, _)| port.clone()).collect()
    }

    /// Releases the ports whose reservation has ended. Returns true if there are any. Setting the clock back
    /// prolongs no reservation.
    pub fn expire(&mut self, now: i64) -> bool {
        let before = self.0.len();
        self.0.retain(|_, until| until.is_none_or(|until| (now + 1..=now + HOLD).contains(&until)));
        self.0.len() != before
    }

    /// Records the current owners of ports, and starts the reservation of ports whose Services are gone. A
    /// Service that exists and listens elsewhere has given up its port.
    pub fn learn(&mut self, desired: &Desired, facts: &Facts, now: i64) {
        self.0.retain(|port, until| until.is_some() || is_gone(port, facts));
        for until in self.0.values_mut() {
            until.get_or_insert(now + HOLD);
        }
        for frontend in &desired.frontends {
            // The same namespace has taken the port, so it is no longer reserved for the former Service.
            self.0.retain(|held, until| {
                until.is_none()
                    || held.port != frontend.port
                    || held.addresses != frontend.addresses
                    || held.namespace != frontend.namespace
            });
            let owned = HeldPort {
                port: frontend.port,
                addresses: frontend.addresses.clone(),
                namespace: frontend.namespace.clone(),
                service: frontend.service.clone(),
            };
            self.0.insert(owned, None);
        }
        while self.0.len() > MAX_HELD {
            self.0.pop_last();
        }
    }
}

fn is_gone(port: &HeldPort, facts: &Facts) -> bool {
    !facts.services.contains_key(&(port.namespace.clone(), port.service.clone()))
}
