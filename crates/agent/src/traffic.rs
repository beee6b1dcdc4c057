//! Counts the connections of clients to this host, for `nodegate wait --for released`. `agent` starts it.

use nodegate_agent_api::Traffic;
use nodegate_local_checks::count_sessions;
use nodegate_program::List;
use nodegate_readiness::moment::millis;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Starts counting the connections to these ports, and returns how to get the latest count; `None` without ports.
pub(crate) fn count(List(ports): List<u16>) -> io::Result<Option<Arc<dyn Fn() -> Traffic + Send + Sync>>> {
    if ports.is_empty() {
        return Ok(None);
    }
    let last = Arc::new(Mutex::new(None));
    let counted = Arc::clone(&last);
    count_sessions(ports.clone(), move |established| {
        let count = Count { at: nodegate_clock::now(), established };
        *counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
    })?;
    Ok(Some(Arc::new(move || {
        let last = last.lock().unwrap_or_else(PoisonError::into_inner);
        traffic(ports.clone(), last.as_ref())
    })))
}

/// The number of connections at an instant, or the reason why it is not known.
struct Count {
    at: Instant,
    established: Result<u64, String>,
}

/// Parses the ports to count.
pub(crate) fn traffic_ports(value: &str) -> Result<List<u16>, String> {
    const MAX_PORTS: usize = 16;
    let takes = || format!("takes a list of up to {MAX_PORTS} ports");
    let list = List::<u16>::of("ports")(value).map_err(|_| takes())?;
    if list.0.len() > MAX_PORTS || list.0.contains(&0) { Err(takes()) } else { Ok(list) }
}

fn traffic(ports: Vec<u16>, last: Option<&Count>) -> Traffic {
    let mut traffic = Traffic { ports, ..Traffic::default() };
    if let Some(Count { at, established }) = last {
        traffic.age_ms = Some(millis(nodegate_clock::now().saturating_duration_since(*at)));
        match established {
            Ok(established) => traffic.established = Some(*established),
            Err(error) => traffic.error = Some(error.clone()),
        }
    }
    traffic
}
