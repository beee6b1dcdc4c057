//! Writes to the cluster: the Lease that decides which process writes, statuses of Services, and Events.
//!
//! [`candidate`] decides about the Lease without IO, with time as a value; [`lease`] does the requests.

pub mod candidate;
pub(crate) mod failing;
pub mod lease;
