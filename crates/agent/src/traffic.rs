//! Counts the connections of clients to this host, for `nodegate wait --for released`. `agent` starts it.

use nodegate_agent_api::Traffic;
use nodegate_local_checks::Sessions;
use nodegate_program::List;
use nodegate_readiness::moment::millis;
use std::io;
use std::sync::Arc;

/// Starts counting the connections to these ports, and returns how to get the latest count; `None` without ports.
pub(crate) fn count(List(ports): List<u16>) -> io::Result<Option<Arc<dyn Fn() -> Traffic + Send + Sync>>> {
    if ports.is_empty() {
        return Ok(None);
    }
    let sessions = Sessions::start(ports)?;
    Ok(Some(Arc::new(move || latest(&sessions))))
}

/// Parses the ports to count.
pub(crate) fn traffic_ports(value: &str) -> Result<List<u16>, String> {
    const MAX_PORTS: usize = 16;
    let takes = || format!("takes a list of up to {MAX_PORTS} ports");
    let list = List::<u16>::of("ports")(value).map_err(|_| takes())?;
    if list.0.len() > MAX_PORTS || list.0.contains(&0) { Err(takes()) } else { Ok(list) }
}

fn latest(sessions: &Sessions) -> Traffic {
    let mut traffic = Traffic { ports: sessions.ports().to_vec(), ..Traffic::default() };
    if let Some(counted) = sessions.last() {
        let age = nodegate_clock::now().saturating_duration_since(counted.at);
        traffic.age_ms = Some(millis(age));
        match counted.established {
            Ok(established) => traffic.established = Some(established),
            Err(error) => traffic.error = Some(error),
        }
    }
    traffic
}
