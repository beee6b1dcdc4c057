//! Decides whether kube-proxy is expected if nothing listens on its port.

use std::str::FromStr;
use std::time::Duration;

/// A kube-proxy that is to come has come by then: a node that boots starts it minutes after the kubelet, with an image that
/// it may have to pull first.
pub(super) const COMES_WITHIN: Duration = Duration::from_mins(5);

/// What is said of the node: has it a kube-proxy?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Deployed {
    /// Found out: by what ever listened on the port, and by how long the node has been up.
    #[default]
    Auto,
    /// It has one.
    Yes,
}

/// Why nothing listens on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It should be there, and is not.
    Missing,
    /// The node boots: it may still come.
    NotStarted,
    /// Cilium, OVN-Kubernetes and others do its work in their own way: a node without it is no broken node.
    NotDeployed,
}

impl Deployed {
    /// What it means that nothing listens, on a node that has been up for so long.
    pub(super) fn absence(self, was_there: bool, node_up: Duration) -> Absence {
        match self {
            Self::Yes => Absence::Missing,
            Self::Auto if was_there => Absence::Missing,
            Self::Auto if node_up < COMES_WITHIN => Absence::NotStarted,
            Self::Auto => Absence::NotDeployed,
        }
    }
}

/// Why a word is no such setting.
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
