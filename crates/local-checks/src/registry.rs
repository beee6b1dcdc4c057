//! The list of all checks.

use crate::checks;
use crate::definition::Definition;

/// The checks that exist, in the order of lists for people.
pub static KNOWN: &[Definition] = &[
    checks::okd_router_1936::DEFINITION,
    checks::kubelet::DEFINITION,
    checks::apiserver::DEFINITION,
    checks::kube_proxy::DEFINITION,
    checks::container_runtime::DEFINITION,
    checks::filesystem_ro::DEFINITION,
    checks::disk_pressure::DEFINITION,
    checks::network::DEFINITION,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Context;
    use crate::host_root::HostRoot;
    use crate::options::{OptionKey, Options};
    use crate::timing::{DEFAULT_TIMEOUT, KEYS};

    #[test]
    fn names_and_keys_are_unique() {
        for (n, definition) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..n].iter().all(|other| other.name != definition.name), "{}", definition.name);
            let keys: Vec<_> = definition.options.iter().map(OptionKey::name).collect();
            for (n, key) in keys.iter().enumerate() {
                assert!(
                    !keys[..n].contains(key) && !KEYS.iter().any(|known| known.name() == *key),
                    "{}:{key}",
                    definition.name
                );
            }
        }
    }

    #[test]
    fn every_check_can_be_made_when_nothing_is_set() {
        let (host, options) = (HostRoot::default(), Options::default());
        for definition in KNOWN {
            (definition.new)(&Context { host: &host, options: &options, timeout: DEFAULT_TIMEOUT });
        }
    }
}
