//! Limits the agent's requests and connections to the API during faults: attempts back off, and an error
//! answer costs no connection. `episode.rs` calls it.

use crate::plan::Plan;
use crate::server_faults::ApiUsage;
use std::time::Duration;

/// The requests that an outage may begin with, and that each second of it may add. Two or three watches retry
/// every 5 s on average, each with a list and a watch if the server closes watches at once. Watches that
/// restart retry sooner.
const REQUESTS: (f64, f64) = (25.0, 1.2);
/// The same for connections.
const CONNECTIONS: (f64, f64) = (10.0, 0.35);
/// The same for connections while the API server answers with errors: the agent tries another connection
/// after 3 s, 6 s, and so on up to 30 s.
const CONNECTIONS_FOR_ERRORS: (f64, f64) = (4.0, 0.04);

/// Checks the requests and connections between `before` and `after`, which are `took` apart. The error says
/// which limit was exceeded.
pub(crate) fn judge(plan: &Plan, took: Duration, before: ApiUsage, after: ApiUsage) -> Result<(), String> {
    let (requests, connections) = (after.requests - before.requests, after.connections - before.connections);
    let most = |(first, each): (f64, f64)| (first + each * took.as_secs_f64()) as u64;
    let errors_alone = plan.faults.iter().all(|planned| planned.fault.keeps_the_connection());
    let most_connections = most(if errors_alone { CONNECTIONS_FOR_ERRORS } else { CONNECTIONS });
    if requests > most(REQUESTS) {
        return Err(format!("{requests} requests in {:.1} s of faults", took.as_secs_f64()));
    }
    if connections > most_connections {
        return Err(format!("{connections} connections in {:.1} s of faults", took.as_secs_f64()));
    }
    Ok(())
}
