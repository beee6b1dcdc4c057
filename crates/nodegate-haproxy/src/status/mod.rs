//! Writes to the cluster: the Lease that decides which process writes, statuses of Services, and Events.
//!
//! [`candidate`] decides about the Lease without IO, with time as a value; [`lease`] does the requests.

pub mod candidate;
pub(crate) mod failing;
pub mod lease;

use crate::plan::status::StatusAddresses;
use lease::LeaseName;

/// The settings of `--publish-status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSettings {
    /// The addresses that clients use.
    pub addresses: StatusAddresses,
    /// The Lease that decides which process writes.
    pub lease: LeaseName,
}
