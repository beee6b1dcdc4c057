//! Tests of the server from outside: a board in a chosen state, and clients that speak bytes.

#[cfg(test)]
mod agent_check;
#[cfg(test)]
mod allocations;
#[cfg(test)]
mod big_answers;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod probers;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod service_acknowledged;
