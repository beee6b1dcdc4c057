//! The operator's minimum of free space for each path.

use super::free_space::{MinimumFree, NODE};
use crate::paths::Paths;
use std::path::PathBuf;
use std::str::FromStr;

/// The limits in a setting such as `/var/lib/kubelet=5%/2%:/data=1Gi`, in the kubelet's own forms: bytes, then
/// inodes unless the kubelet's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitSettings(pub(super) Vec<(PathBuf, MinimumFree)>);

const TAKES: &str = "takes <path>=<bytes>[/<inodes>], separated by \":\", at most 64, each path once, each limit \
                     a share or a quantity, e.g. /var/lib/kubelet=5%/0.5%:/data=1Gi; 0% is never too little";

impl FromStr for LimitSettings {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let set: Option<Vec<_>> = text.split(':').map(one).collect();
        let set = set.ok_or(TAKES)?;
        let once =
            |(at, (path, _)): (usize, &(PathBuf, _))| set.iter().skip(at + 1).all(|(other, _)| other != path);
        if set.len() <= Paths::MAX && set.iter().enumerate().all(once) { Ok(Self(set)) } else { Err(TAKES) }
    }
}

fn one(text: &str) -> Option<(PathBuf, MinimumFree)> {
    // The last `=` separates: a path may contain others.
    let (path, limits) = text.rsplit_once('=')?;
    let (bytes, inodes) = match limits.split_once('/') {
        Some((bytes, inodes)) => (bytes, inodes.parse().ok()?),
        None => (limits, NODE.inodes),
    };
    let path = PathBuf::from(path);
    path.is_absolute().then_some((path, MinimumFree { bytes: bytes.parse().ok()?, inodes }))
}

#[cfg(test)]
mod tests {
    use super::super::free_space::Minimum;
    use super::*;

    #[test]
    fn inodes_are_as_usual_unless_they_are_set() {
        let LimitSettings(set) = "/var/lib/kubelet=5%/2%:/a=b=1Ki:/=0%/0%".parse().unwrap();
        let limits =
            |bytes, inodes| MinimumFree { bytes: Minimum::percent(bytes), inodes: Minimum::percent(inodes) };
        let kibibyte = MinimumFree { bytes: Minimum::Amount(1024), ..NODE };
        let expected = [("/var/lib/kubelet", limits(5, 2)), ("/a=b", kibibyte), ("/", limits(0, 0))];
        assert_eq!(set, expected.map(|(path, limits)| (PathBuf::from(path), limits)));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "/",
            "/=",
            "/=5x",
            "5%",
            "=5%",
            "a=5%",
            "/=5%/",
            "/=5%/2%/1%",
            "/=101%",
            "/=5%:",
            "/=5%:/=6%",
        ] {
            assert_eq!(bad.parse::<LimitSettings>(), Err(TAKES), "{bad}");
        }
        let many: Vec<String> = (0..65).map(|n| format!("/{n}=5%")).collect();
        assert!(many.join(":").parse::<LimitSettings>().is_err());
        assert!(many[1..].join(":").parse::<LimitSettings>().is_ok());
    }
}
