//! Counts the connections of clients to this host, for `nodegate wait --for released`.

use nodegate_local_checks::Sessions;
use nodegate_readiness::probers::Traffic;
use nodegate_server::CountTraffic;
use std::io;
use std::sync::Arc;

/// Starts counting the connections to these ports; without ports there is no counter.
pub(crate) fn count(ports: Vec<u16>) -> io::Result<Option<Arc<dyn CountTraffic>>> {
    if ports.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Counter(Sessions::start(ports)?))))
}

struct Counter(Arc<Sessions>);

impl CountTraffic for Counter {
    fn counted(&self) -> Traffic {
        let mut traffic = Traffic { ports: self.0.ports().to_vec(), ..Traffic::default() };
        if let Some(counted) = self.0.last() {
            let age = nodegate_clock::now().saturating_duration_since(counted.at);
            traffic.age_ms = u64::try_from(age.as_millis()).ok();
            match counted.established {
                Ok(established) => traffic.established = Some(established),
                Err(error) => traffic.error = Some(error),
            }
        }
        traffic
    }
}
