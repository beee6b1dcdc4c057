//! The checks that exist: one visible list.

use crate::check::Probe;
use crate::checks::{
    container_runtime, disk_pressure, filesystem_ro, kube_proxy, kubelet, network, okd_router_1936,
};
use crate::host_root::HostRoot;
use crate::options::{OptionKey, Options};
use crate::timing::Timing;
use crate::url::HttpUrl;
use std::sync::Arc;
use std::time::Duration;

/// Often enough that a dead component is out of the pool within a few probes of the load balancer, rarely enough that
/// ten checks cost the node two wake-ups a second.
const INTERVAL: Duration = Duration::from_secs(5);

/// A component that crashed refuses the connection at once; the timeout is only for one that hangs or starves. Five
/// seconds is what `okd_router_1936` is documented with, and it takes a node out for being stuck, not for being busy.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const USUAL: Timing = Timing::new(INTERVAL, DEFAULT_TIMEOUT);

/// Every check, in the order in which they are listed to people.
static KNOWN: &[Definition] = &[
    Definition { name: "okd_router_1936", defaults: USUAL, constructor: okd_router_1936::CONSTRUCTOR },
    Definition { name: "kubelet", defaults: USUAL, constructor: kubelet::CONSTRUCTOR },
    Definition { name: "kube_proxy", defaults: USUAL, constructor: kube_proxy::CONSTRUCTOR },
    Definition { name: "container_runtime", defaults: USUAL, constructor: container_runtime::CONSTRUCTOR },
    Definition { name: "filesystem_ro", defaults: USUAL, constructor: filesystem_ro::CONSTRUCTOR },
    Definition { name: "disk_pressure", defaults: USUAL, constructor: disk_pressure::CONSTRUCTOR },
    Definition { name: "network", defaults: USUAL, constructor: network::CONSTRUCTOR },
];

/// The checks that exist.
pub fn known() -> &'static [Definition] {
    KNOWN
}

/// One check, as it is when nothing is set.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name by which requests and settings ask for it.
    pub name: &'static str,
    /// Its timing, unless set otherwise.
    pub defaults: Timing,
    /// How its probe is made.
    pub constructor: Constructor,
}

/// How a probe is made, which also says what can be set on it besides its timing.
#[derive(Clone, Copy, Debug)]
pub struct Constructor {
    /// What can be set.
    pub options: &'static [OptionKey],
    /// Makes the probe.
    pub new: fn(&Context<'_>) -> Arc<dyn Probe>,
}

/// What a probe is made from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where the host's files are.
    pub host: &'a HostRoot,
    /// What the operator set on this check.
    pub options: &'a Options,
    /// How long one run may take, for a probe that looks at several things and wants to say which one hangs.
    pub timeout: Duration,
}

impl Context<'_> {
    /// The URL that is set, or the usual one.
    pub(crate) fn url(&self, usual: impl FnOnce() -> HttpUrl) -> HttpUrl {
        self.options.get(HttpUrl::OPTION.name()).unwrap_or_else(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TIMING_KEYS;

    #[test]
    fn names_and_keys_are_unique() {
        for (n, definition) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..n].iter().all(|other| other.name != definition.name), "{}", definition.name);
            let keys: Vec<_> = definition.constructor.options.iter().map(OptionKey::name).collect();
            for (n, key) in keys.iter().enumerate() {
                assert!(!keys[..n].contains(key) && !TIMING_KEYS.contains(key), "{}:{key}", definition.name);
            }
        }
    }

    #[test]
    fn every_check_can_be_made_when_nothing_is_set() {
        let (host, options) = (HostRoot::default(), Options::default());
        for definition in KNOWN {
            (definition.constructor.new)(&Context {
                host: &host,
                options: &options,
                timeout: DEFAULT_TIMEOUT,
            });
        }
    }
}
