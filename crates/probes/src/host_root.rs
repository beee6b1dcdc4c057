//! Where the host's files are.

use std::path::{Path, PathBuf};

/// The directory below which the host's files are: `/`, or where a container has the host's `/` mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl HostRoot {
    /// The directory must be given from `/`, so that it means the same wherever the agent was started.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, &'static str> {
        let path = path.into();
        if path.is_absolute() {
            Ok(Self(path))
        } else {
            Err("takes a directory that begins with /, e.g. /host")
        }
    }

    /// The directory itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Where a path of the host is found, if no link is on the way.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_below_the_root() {
        let root = HostRoot::new("/host").unwrap();
        assert_eq!(root.join("/etc/resolv.conf"), Path::new("/host/etc/resolv.conf"));
        assert_eq!(root.join("/"), Path::new("/host/"));
        assert_eq!(HostRoot::default().join("/proc/1/mountinfo"), Path::new("/proc/1/mountinfo"));
        assert!(HostRoot::new("host").is_err());
        assert!(HostRoot::new("").is_err());
    }
}
