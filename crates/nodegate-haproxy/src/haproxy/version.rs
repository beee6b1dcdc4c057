//! The version of HAProxy, and the features of later versions.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The timeout for a program that only prints its version.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The major and the minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The oldest supported version. Before it, dynamic servers had no checks, and masters told too little
    /// about reloads.
    pub const OLDEST: Self = Self(2, 6);
    /// The first version with `init-state`.
    pub const INIT_STATE: Self = Self(3, 1);

    /// Finds the version in HAProxy's output: `HAProxy version 3.2.26-1 2026/10/14`, or `Version: 2.6.12`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |word: &str| {
            let mut parts = word.split(['.', '-']).map(str::parse);
            Some(Self(parts.next()?.ok()?, parts.next()?.ok()?))
        };
        text.split_whitespace().find_map(number)
    }

    /// Returns the version that a program prints. Returns `None` if it can't be run or prints something else.
    pub async fn of(program: &Path) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg("-v").stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(TIMEOUT, command.output()).await.ok()?.ok()?;
        Self::parse(String::from_utf8_lossy(&output.stdout).lines().next()?)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_say_a_version_is_read() {
        for (text, version) in [
            ("HA-Proxy version 2.2.9-2+deb11u6 2023/12/23 - https://haproxy.org/", Some(Version(2, 2))),
            ("HAProxy version 3.4-dev12 2026/10/14", Some(Version(3, 4))),
            ("Version: 2.6.12-1+deb12u4", Some(Version(2, 6))),
            ("Version: ", None),
            ("", None),
        ] {
            assert_eq!(Version::parse(text), version, "{text}");
        }
    }
}
