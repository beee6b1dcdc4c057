//! What the agent may ask of the API while faults last: attempts back off, and an answer that is an error
//! costs no connection.

use crate::fault::SimulatedFault;
use crate::plan::Plan;
use crate::reach::ApiRequest;
use std::time::Duration;

/// Requests and connections that an outage may begin with, and that each second of it may add. Two or three
/// watches try again every 5 s on average, each with a list and a watch if the server closes watches at once;
/// those that begin anew try sooner.
const REQUESTS: (f64, f64) = (25.0, 1.2);
const CONNECTIONS: (f64, f64) = (10.0, 0.35);
/// Connections while the API server answers with errors: another one is tried after 3 s, 6 s, and so on up to
/// 30 s.
const CONNECTIONS_FOR_ERRORS: (f64, f64) = (4.0, 0.04);

/// Returns true for a fault that leaves the connection as it is: the server answers, or it does not concern
/// the API.
fn keeps_the_connection(fault: SimulatedFault) -> bool {
    matches!(
        fault,
        SimulatedFault::Throttled
            | SimulatedFault::Forbidden
            | SimulatedFault::LeaseForbidden
            | SimulatedFault::Expired
            | SimulatedFault::Refusals
            | SimulatedFault::KubeletDead
            | SimulatedFault::ClockStep
            | SimulatedFault::NoBookmarks
    )
}

/// Judges what the faults of this plan have cost, from `before` to `after` within this time.
pub(crate) fn judge(
    plan: &Plan,
    took: Duration,
    before: ApiRequest,
    after: ApiRequest,
) -> Result<(), String> {
    let (requests, connections) = (after.requests - before.requests, after.connections - before.connections);
    let most = |(first, each): (f64, f64)| (first + each * took.as_secs_f64()) as u64;
    let errors_alone = plan.faults.iter().all(|planned| keeps_the_connection(planned.fault));
    let most_connections = most(if errors_alone { CONNECTIONS_FOR_ERRORS } else { CONNECTIONS });
    if requests > most(REQUESTS) {
        return Err(format!("{requests} requests in {:.1} s of faults", took.as_secs_f64()));
    }
    if connections > most_connections {
        return Err(format!("{connections} connections in {:.1} s of faults", took.as_secs_f64()));
    }
    Ok(())
}
