//! Paths in an operator's settings.

use std::path::PathBuf;
use std::str::FromStr;

/// Paths of the host, separated by colons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths(pub(crate) Vec<PathBuf>);

impl Paths {
    /// The maximum number of paths of one check.
    pub(crate) const MAX: usize = 64;
}

impl FromStr for Paths {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let paths: Vec<PathBuf> = text.split(':').map(PathBuf::from).collect();
        let fits = paths.len() <= Self::MAX && paths.iter().all(|path| path.is_absolute());
        if fits {
            Ok(Self(paths))
        } else {
            Err("takes up to 64 paths of the host, e.g. /:/var/lib/kubelet:/data")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_hosts_root() {
        assert_eq!("/:/var".parse(), Ok(Paths(vec!["/".into(), "/var".into()])));
        for bad in ["", ":", "var", "/:", "/a::/b"] {
            assert!(bad.parse::<Paths>().is_err(), "{bad}");
        }
        assert!("/a:".repeat(65).trim_end_matches(':').parse::<Paths>().is_err());
    }
}
