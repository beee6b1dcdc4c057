//! Ports whose Services are gone, and which nobody else gets for a while: a Service that is deleted and made again finds its
//! own port free.

use crate::plan::desired::Desired;
use crate::plan::facts::{Facts, HeldPort};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a port stays reserved, in seconds.
pub const HOLD: i64 = 300;
/// More ports than this are not held.
const MAX_HELD: usize = 10_000;

/// Whose ports they are, and whose they were until lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(BTreeMap<HeldPort, Option<i64>>);

/// One of them, for the next run of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    #[serde(flatten)]
    port: HeldPort,
    /// Until when it is held, in seconds since 1970; none while its Service is there.
    until: Option<i64>,
}

impl Holds {
    /// Takes up what an earlier run knew.
    pub fn new(known: impl IntoIterator<Item = Hold>) -> Self {
        Self(known.into_iter().take(MAX_HELD).map(|hold| (hold.port, hold.until)).collect())
    }

    /// Returns all of it for the next run.
    pub fn all(&self) -> Vec<Hold> {
        self.0.iter().map(|(port, until)| Hold { port: port.clone(), until: *until }).collect()
    }

    /// Returns what is reserved for Services that are gone, by these facts for the first time or for longer.
    pub fn reserved(&self, facts: &Facts) -> Vec<HeldPort> {
        let reserved = self.0.iter().filter(|(port, until)| until.is_some() || is_gone(port, facts));
        reserved.map(|(port, _)| port.clone()).collect()
    }

    /// Releases what has been held for long enough; true if that is anything. A clock that was set back holds nothing for
    /// longer.
    pub fn expire(&mut self, now: i64) -> bool {
        let before = self.0.len();
        self.0.retain(|_, until| until.is_none_or(|until| (now + 1..=now + HOLD).contains(&until)));
        self.0.len() != before
    }

    /// Learns who has which port now, and from when on the ports of Services that are gone are held. A Service that is
    /// there and listens elsewhere has given its port away.
    pub fn learn(&mut self, desired: &Desired, facts: &Facts, now: i64) {
        self.0.retain(|port, until| until.is_some() || is_gone(port, facts));
        for until in self.0.values_mut() {
            until.get_or_insert(now + HOLD);
        }
        for frontend in &desired.frontends {
            // What the same namespace has taken is nobody else's to come back to.
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
