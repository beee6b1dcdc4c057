//! Limits the reviews of each client, which cost quorum reads.

use nodegate_http::client_key;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The reviews of a client that are answered at once, such as those of a drain of several full nodes.
const BURST: f64 = 1000.0;
/// The reviews of a client in a second after that.
const IN_A_SECOND: f64 = 100.0;
/// The most clients with a record; the one that sent a review longest ago is forgotten first.
const MAX_CLIENTS: usize = 1024;

/// The reviews of each client. All addresses of an IPv6 /64 are one client.
#[derive(Debug, Default)]
pub(crate) struct ReviewLimit(Mutex<HashMap<IpAddr, Client>>);

#[derive(Clone, Copy, Debug)]
struct Client {
    left: f64,
    at: Instant,
}

impl ReviewLimit {
    /// Returns true if this client may send one more review.
    pub(crate) fn allows(&self, from: IpAddr, now: Instant) -> bool {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = client_key(from);
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&key) {
            let oldest = clients.iter().min_by_key(|(_, client)| client.at).map(|(key, _)| *key);
            oldest.and_then(|oldest| clients.remove(&oldest));
        }
        let client = clients.entry(key).or_insert(Client { left: BURST, at: now });
        let since = now.saturating_duration_since(client.at).as_secs_f64();
        client.left = (client.left + since * IN_A_SECOND).min(BURST);
        client.at = now;
        let is_allowed = client.left >= 1.0;
        if is_allowed {
            client.left -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_client_has_a_burst_and_a_rate_of_its_own() {
        let (limit, start) = (ReviewLimit::default(), nodegate_clock::now());
        let at = |millis| start + Duration::from_millis(millis);
        let allowed = |last: u8, millis, tries: u32| {
            (0..tries).filter(|_| limit.allows(IpAddr::from([10, 0, 0, last]), at(millis))).count()
        };
        assert_eq!(allowed(1, 0, 5000), 1000);
        assert_eq!(allowed(1, 500, 5000), 50);
        assert_eq!(allowed(2, 500, 500), 500, "the API server beside a stranger");
        assert_eq!(allowed(1, 60_000, 5000), 1000);
        for number in 0..5000_u32 {
            limit.allows(IpAddr::from(number.to_be_bytes()), at(60_001));
        }
        assert!(limit.0.lock().unwrap().len() <= MAX_CLIENTS);
    }
}
