//! Which release of Kubernetes is played, and what clients can tell it by.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// `1.<minor>`, 1.28 to 1.36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    minor: u32,
}

/// The oldest and the newest that is known.
const KNOWN: std::ops::RangeInclusive<u32> = 28..=36;

impl Default for Release {
    /// Returns the newest.
    fn default() -> Self {
        Release { minor: *KNOWN.end() }
    }
}

/// It is none of those that are known.
#[derive(Debug, thiserror::Error)]
#[error("one of 1.{} to 1.{} is needed", KNOWN.start(), KNOWN.end())]
pub struct UnknownRelease;

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(text: &str) -> Result<Self, UnknownRelease> {
        let minor = text.strip_prefix("1.").and_then(|minor| minor.parse().ok());
        minor.filter(|minor| KNOWN.contains(minor)).map(|minor| Release { minor }).ok_or(UnknownRelease)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

impl Release {
    /// Returns true if a watch may begin with a list (`sendInitialEvents`): on by default in 1.32, off again
    /// in 1.33.
    pub(crate) fn streams_lists(self) -> bool {
        self.minor == 32 || self.minor >= 34
    }

    /// Returns true if a consistent list is answered from the watch cache, once that has got as far as etcd;
    /// after 3 s from etcd.
    pub(crate) fn lists_from_cache(self) -> bool {
        self.minor >= 31
    }

    /// Returns true if a list from a version that is no number is refused with 400; else it fails with 500.
    pub(crate) fn checks_versions_of_lists(self) -> bool {
        self.minor >= 33
    }

    /// Returns true if an empty `creationTimestamp` is written as null.
    pub(crate) fn writes_null_times(self) -> bool {
        self.minor < 34
    }

    /// Returns the versions of the aggregated discovery document.
    pub(crate) fn discovery(self) -> &'static [&'static str] {
        match self.minor {
            ..=29 => &["v2beta1"],
            30..=32 => &["v2", "v2beta1"],
            _ => &["v2"],
        }
    }

    /// How long after a kubelet's last sign of life its node is Unknown: the default of `--node-monitor-grace-period`,
    /// which 1.32 raised.
    pub(crate) fn grace(self) -> Duration {
        Duration::from_secs(if self.minor < 32 { 40 } else { 50 })
    }

    /// `/version`, indented as the real one is.
    pub(crate) fn document(self) -> String {
        let minor = self.minor;
        // Which release is emulated is told from 1.33 on.
        let emulated = if minor < 33 {
            String::new()
        } else {
            format!(
                "\n  \"emulationMajor\": \"1\",\n  \"emulationMinor\": \"{minor}\",\n  \"minCompatibilityMajor\": \"1\",\n  \"minCompatibilityMinor\": \"{}\",",
                minor - 1
            )
        };
        format!(
            r#"{{
  "major": "1",
  "minor": "{minor}",{emulated}
  "gitVersion": "v1.{minor}.0",
  "gitCommit": "x",
  "gitTreeState": "",
  "buildDate": "2026-01-01T00:00:00Z",
  "goVersion": "go1.26.10",
  "compiler": "gc",
  "platform": "linux/amd64"
}}"#
        )
    }
}
