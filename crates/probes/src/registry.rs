//! The checks that exist: one visible list.

use crate::checks::{kubelet, okd_router_1936};
use crate::probe::Probe;
use crate::timing::Timing;
use crate::url::HttpUrl;
use std::sync::Arc;
use std::time::Duration;

/// Often enough that a dead component is out of the pool within a few probes of the load balancer, rarely enough that
/// ten checks cost the node two wake-ups a second.
const INTERVAL: Duration = Duration::from_secs(5);

/// A component that crashed refuses the connection at once; the timeout is only for one that hangs or starves. Five
/// seconds is what `okd_router_1936` is documented with, and it takes a node out for being stuck, not for being busy.
const TIMEOUT: Duration = Duration::from_secs(5);

const USUAL: Timing = Timing::new(INTERVAL, TIMEOUT);

/// Every check, in the order in which they are listed to people.
static KNOWN: &[Definition] = &[
    Definition { name: "okd_router_1936", defaults: USUAL, constructor: okd_router_1936::CONSTRUCTOR },
    Definition { name: "kubelet", defaults: USUAL, constructor: kubelet::CONSTRUCTOR },
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
pub enum Constructor {
    /// A check with nothing to set.
    Plain(fn() -> Arc<dyn Probe>),
    /// A check that asks a URL, which `url=` replaces.
    Url {
        /// The URL, unless set otherwise.
        default: &'static str,
        /// Makes the probe.
        new: fn(HttpUrl) -> Arc<dyn Probe>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_default_urls_are_valid() {
        for (n, definition) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..n].iter().all(|other| other.name != definition.name), "{}", definition.name);
            if let Constructor::Url { default, .. } = definition.constructor {
                assert!(default.parse::<HttpUrl>().is_ok(), "{}", definition.name);
            }
        }
    }
}
