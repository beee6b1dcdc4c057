//! Writes to the cluster: the Lease that decides which process writes, statuses of Services, and Events.
//!
//! [`candidate`] decides about the Lease without IO, with time as a value; [`lease`] does the requests.
//! [`documents`] has the bodies of requests.

pub mod candidate;
pub mod documents;
pub mod lease;
