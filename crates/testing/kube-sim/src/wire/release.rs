//! The simulated release of Kubernetes, and the differences that clients see.

use std::str::FromStr;
use std::time::Duration;

/// A release, `1.<minor>`, 1.28 to 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    minor: u32,
}

/// The minor versions of the oldest and the newest known release.
const KNOWN: std::ops::RangeInclusive<u32> = 28..=37;

impl Default for Release {
    /// Returns the release that was recorded from a real API server. No API server of 1.37 could be run yet; it
    /// is played with the answers of 1.36 under its own name.
    fn default() -> Self {
        Release { minor: 36 }
    }
}

/// The error of a release that is not known.
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

impl Release {
    /// Returns true if a watch may start with a list (`sendInitialEvents`). It is on by default in 1.32, and
    /// off again in 1.33.
    pub(crate) fn streams_lists(self) -> bool {
        self.minor == 32 || self.minor >= 34
    }

    /// Returns true if the watch cache answers a consistent list once it has caught up with etcd. After 3 s,
    /// etcd answers.
    pub(crate) fn lists_from_cache(self) -> bool {
        self.minor >= 31
    }

    /// Returns true if an empty `creationTimestamp` is null in JSON.
    pub(crate) fn writes_null_times(self) -> bool {
        self.minor < 34
    }

    /// Returns the time from a kubelet's last sign of life until its node is Unknown: the default of
    /// `--node-monitor-grace-period`, which 1.32 raised.
    pub(crate) fn grace(self) -> Duration {
        Duration::from_secs(if self.minor < 32 { 40 } else { 50 })
    }

    /// Returns the document for `/version`, indented as a real API server does.
    pub(crate) fn document(self) -> String {
        let minor = self.minor;
        // The document has the emulated release from 1.33 on.
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
