//! Which names may go into a configuration file, and how ours are made.

/// The backend whose servers are the nodes themselves; others track it.
pub const NODES_BACKEND: &str = "nodegate_nodes";

/// What the names of Services' backends begin with, and those of their frontends.
pub const BACKEND_PREFIX: &str = "k8s_";

/// Whether a name from the API is what the API server promises: a DNS subdomain (RFC 1123). Nothing else is ever written
/// into a configuration, so no name can end a line or begin a keyword.
pub fn is_dns_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    let outer = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let bytes = name.as_bytes();
    name.len() <= 253 && bytes.iter().all(|c| inner(*c)) && outer(bytes.first()) && outer(bytes.last())
}

/// The name of a Service port's backend. Neither part can hold an underscore, so no two are the same.
pub fn backend(namespace: &str, service: &str, port: u16) -> String {
    format!("{BACKEND_PREFIX}{namespace}_{service}_{port}")
}

/// The name of a backend of drained nodes, for when none is Ready.
pub fn last_resort(kind: &str) -> String {
    format!("nodegate_last_resort_{kind}")
}

/// The name of a backend of all nodes, for when none passes its check.
pub fn any_node(kind: &str) -> String {
    format!("nodegate_any_node_{kind}")
}

/// A text as a word of its own, the same on every machine (FNV-1a of 64 bits).
pub fn hash(text: impl AsRef<[u8]>) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.as_ref().iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The name of the frontend that leads there. No port ends like this, so it is no backend's.
pub fn frontend(backend: &str) -> String {
    format!("{backend}_frontend")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_the_published_one() {
        // The test vectors of the algorithm's authors.
        assert_eq!(hash(""), "cbf29ce484222325");
        assert_eq!(hash("foobar"), "85944171f73967e8");
    }

    #[test]
    fn only_dns_names_pass() {
        for good in ["a", "node-1", "ip-10-0-0-1.eu.example.com", "0"] {
            assert!(is_dns_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "A", "a b", "a\nb", "a#", "a;b", "ä", ".a", &"a".repeat(254)] {
            assert!(!is_dns_name(bad), "{bad:?}");
        }
    }
}
