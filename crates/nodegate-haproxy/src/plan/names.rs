//! The names of the generated sections.

// Namespaces and names of Services contain no underscore, so no two of these names are equal.

use sha2::{Digest, Sha256};

pub(crate) const DEFAULTS: &str = "nodegate";
/// The backend whose servers are the nodes themselves; other backends track it.
pub(crate) const NODES: &str = "nodegate_nodes";
/// The backend that checks each node, drained or not. The last-resort backends track it.
pub(crate) const PASSING: &str = "nodegate_passing";

/// The backend that checks the nodes with the exclusion label, as if they did not have it.
pub(crate) const LABELLED: &str = "nodegate_labelled";

pub(crate) fn backend(namespace: &str, service: &str, port: u16) -> String {
    format!("nodegate_{namespace}_{service}_{port}")
}

pub(crate) fn forward(name: &str) -> String {
    format!("nodegate_forward_{name}")
}

/// Returns the name of a backend's frontend. HAProxy 3.3 and later refuse one with the name of a backend.
pub(crate) fn frontend(backend: &str) -> String {
    format!("{backend}_frontend")
}

pub(crate) fn last_resort_of(backend: &str) -> String {
    format!("{backend}_last_resort")
}

pub(crate) fn labelled_of(backend: &str) -> String {
    format!("{backend}_labelled")
}

pub(crate) fn labelled(kind: &str) -> String {
    format!("nodegate_labelled_{kind}")
}

pub(crate) fn last_resort(kind: &str) -> String {
    format!("nodegate_last_resort_{kind}")
}

pub(crate) fn any_node(kind: &str) -> String {
    format!("nodegate_any_node_{kind}")
}

/// Returns the name of the empty backend by which a running HAProxy proves that it has loaded a file.
pub(crate) fn proof(hash: &str) -> String {
    format!("nodegate_{hash}")
}

/// Returns the number of a backend, by its place in the plan: HAProxy warns of states that have another
/// number.
pub(crate) fn id(index: usize) -> usize {
    900_000_001 + index
}

/// Returns half of a SHA-256 as a word. Tenants choose such texts, so no two may have the same digest.
pub(crate) fn hash(text: impl AsRef<[u8]>) -> String {
    let mut digest = format!("{:x}", Sha256::digest(text.as_ref()));
    digest.truncate(32);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hash_is_the_published_one() {
        // From FIPS 180-2.
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn no_two_sections_have_one_name() {
        let own =
            [backend("last", "resort", 443), backend("forward", "a", 443), forward("a"), forward("443")];
        let of_own = own.iter().flat_map(|name| [frontend(name), last_resort_of(name), labelled_of(name)]);
        let shared = [last_resort("resort_443"), any_node("443"), labelled("443")];
        let shared = shared.into_iter().chain([NODES, PASSING, LABELLED].map(str::to_owned));
        let all: Vec<String> =
            of_own.chain(own.iter().cloned()).chain(shared).chain([proof(&hash(""))]).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }
}
