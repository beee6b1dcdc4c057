//! The list of all checks. A new one is a line here.

use crate::check::Definition;
use crate::checks;

/// The checks that exist, in the order of lists for people.
pub static KNOWN: &[Definition] = &[
    checks::own::OKD_ROUTER_1936,
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
    use crate::check::{Context, DEFAULT_TIMEOUT};
    use crate::host_root::HostRoot;
    use crate::options::Options;

    #[test]
    fn every_check_can_be_made_when_nothing_is_set() {
        let (host, options) = (HostRoot::default(), Options::default());
        for definition in KNOWN {
            (definition.new)(&Context { host: &host, options: &options, timeout: DEFAULT_TIMEOUT });
        }
    }
}
