//! The names of the generated sections.

// A backend of a Service is nodegate_NAMESPACE_NAME_PORT, one of a Forward nodegate_forward_NAME. Those that belong to
// one have a word behind that, and those that Services share begin with that word. None of the parts contains an
// underscore, so no two names are equal.

use sha2::{Digest, Sha256};

pub(crate) const DEFAULTS: &str = "nodegate";
/// The backend whose servers are the nodes themselves; other backends track it.
pub(crate) const NODES: &str = "nodegate_nodes";
/// The backend that checks each node, drained or not. The last-resort backends track it.
pub(crate) const PASSING: &str = "nodegate_passing";
/// The backend that checks the nodes with the exclusion label, as if they did not have it.
pub(crate) const LABELLED: &str = "nodegate_labelled";

/// Returns the name of the empty backend by which a running HAProxy proves that it has loaded a file.
pub(crate) fn proof(hash: &str) -> String {
    format!("nodegate_{hash}")
}

/// Returns the number of a backend, by its place in the plan: HAProxy warns of states that have another number.
pub(crate) fn id(index: usize) -> usize {
    900_000_001 + index
}

/// Returns half of a SHA-256 as a word. Tenants choose such texts, so no two may have the same digest.
pub(crate) fn hash(text: impl AsRef<[u8]>) -> String {
    let mut digest = format!("{:x}", Sha256::digest(text.as_ref()));
    digest.truncate(32);
    digest
}
