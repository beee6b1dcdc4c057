//! Counts the connections of clients to this host, for `nodegate wait --for released`. `agent` starts it.

use nodegate_agent_api::Traffic;
use nodegate_local_checks::count_sessions;
use nodegate_program::List;
use nodegate_readiness::moment::millis;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Starts counting the connections to these ports, and returns how to get the latest count; `None` without ports.
pub(crate) fn count(List(ports): List<u16>) -> io::Result<Option<Arc<dyn Fn() -> Traffic + Send + Sync>>> {
    if ports.is_empty() {
        return Ok(None);
    }
    let last = Arc::new(Mutex::new((None, Traffic { ports: ports.clone(), ..Traffic::default() })));
    let counted = Arc::clone(&last);
    count_sessions(ports, move |count| {
        let (at, traffic) = &mut *counted.lock().unwrap_or_else(PoisonError::into_inner);
        *at = Some(nodegate_clock::now());
        (traffic.established, traffic.error) = (count.as_ref().ok().copied(), count.err());
    })?;
    Ok(Some(Arc::new(move || {
        let (at, traffic) = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let age = at.map(|at| nodegate_clock::now().saturating_duration_since(at));
        Traffic { age_ms: age.map(millis), ..traffic }
    })))
}

/// Parses the ports to count.
pub(crate) fn traffic_ports(value: &str) -> Result<List<u16>, String> {
    const MAX_PORTS: usize = 16;
    let takes = || format!("takes a list of up to {MAX_PORTS} ports");
    let list = List::<u16>::of("ports")(value).map_err(|_| takes())?;
    if list.0.len() > MAX_PORTS || list.0.contains(&0) { Err(takes()) } else { Ok(list) }
}
