//! Decides whether kube-proxy is expected if nothing listens on its port.

use std::str::FromStr;
use std::time::Duration;

/// The time after boot by which kube-proxy has started, if it is deployed. A node starts it minutes after the
/// kubelet, with an image that it may have to pull first.
pub(super) const COMES_WITHIN: Duration = Duration::from_mins(5);

/// The setting that tells whether the node has a kube-proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Deployed {
    /// The agent finds out: from an earlier listener on the port, and from the node's uptime.
    #[default]
    Auto,
    /// The node has a kube-proxy.
    Yes,
}

/// The reason why nothing listens on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// No process of kube-proxy runs.
    Missing,
    /// The node boots: kube-proxy may still start.
    NotStarted,
    /// Another program replaces kube-proxy, such as Cilium or OVN-Kubernetes: a node without it is not
    /// broken.
    NotDeployed,
}

impl Deployed {
    /// Returns the reason why nothing listens, on a node that has been up for `node_up`.
    pub(super) fn absence(self, was_there: bool, node_up: Duration) -> Absence {
        match self {
            Self::Yes => Absence::Missing,
            Self::Auto if was_there => Absence::Missing,
            Self::Auto if node_up < COMES_WITHIN => Absence::NotStarted,
            Self::Auto => Absence::NotDeployed,
        }
    }
}

/// The error for a word that is no such setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes auto or yes")]
pub(super) struct BadDeployed;

impl FromStr for Deployed {
    type Err = BadDeployed;

    fn from_str(word: &str) -> Result<Self, BadDeployed> {
        match word {
            "auto" => Ok(Self::Auto),
            "yes" => Ok(Self::Yes),
            _ => Err(BadDeployed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_port_means_what_the_node_is_known_for() {
        let (booting, up) = (Duration::from_secs(299), Duration::from_mins(5));
        let cases = [
            (Deployed::Auto, false, Duration::ZERO, Absence::NotStarted),
            (Deployed::Auto, false, booting, Absence::NotStarted),
            (Deployed::Auto, false, up, Absence::NotDeployed),
            (Deployed::Auto, true, booting, Absence::Missing),
            (Deployed::Auto, true, up, Absence::Missing),
            (Deployed::Yes, false, booting, Absence::Missing),
            (Deployed::Yes, false, up, Absence::Missing),
            (Deployed::Yes, true, up, Absence::Missing),
        ];
        for (deployed, was_there, node_up, absence) in cases {
            assert_eq!(deployed.absence(was_there, node_up), absence, "{deployed:?} {was_there} {node_up:?}");
        }
    }

    #[test]
    fn settings() {
        assert_eq!("yes".parse(), Ok(Deployed::Yes));
        assert_eq!("auto".parse(), Ok(Deployed::Auto));
        for bad in ["", "no", "true", "Yes"] {
            assert_eq!(bad.parse::<Deployed>(), Err(BadDeployed), "{bad:?}");
        }
    }
}
