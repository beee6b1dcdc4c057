//! The directory of the host's files.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The maximum number of attempts: `openat2` fails if a part of the path changes meanwhile.
const TRIES: usize = 8;

/// The directory of the host's files: `/`, or the mount point of the host's `/` in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot(pub(crate) PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl fmt::Display for HostRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl HostRoot {
    /// Creates a root from an absolute path.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, &'static str> {
        let path = path.into();
        let takes = "takes a directory that begins with /, e.g. /host";
        if path.is_absolute() { Ok(Self(path)) } else { Err(takes) }
    }

    /// Returns the location of a path of the host, if no part of it is a link.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Opens a file as the host would: an absolute link stays below the root. The descriptor names the file
    /// and can't read it (`O_PATH`). The call waits for as long as the filesystem does.
    pub(crate) fn locate(&self, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
        let path = path.as_ref();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = open(&self.0, flags | OFlags::DIRECTORY, Mode::empty())?;
        for _ in 0..TRIES {
            match openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // From kernels before 5.6, and container runtimes with an older seccomp profile.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return Ok(open(self.join(path), flags, Mode::empty())?);
                }
                result => return Ok(result?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Reads a regular file like [`HostRoot::locate`], at most this many bytes of it.
    pub(crate) fn read(&self, path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
        let located = self.locate(path)?;
        // Opening a pipe would block.
        if FileType::from_raw_mode(fstat(&located)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a file"));
        }
        let mut bytes = Vec::new();
        File::open(by_descriptor(&located))?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the path of a located file on the host, without links.
    pub(crate) fn real_path(&self, file: &OwnedFd) -> io::Result<PathBuf> {
        let path = fs::read_link(by_descriptor(file))?;
        let below = path.strip_prefix(&self.0).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Path::new("/").join(below))
    }
}

/// Returns true if the error says that a path does not exist.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns a path that leads to an open file, even if its name has changed.
pub(crate) fn by_descriptor(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_of_the_host_are_below_the_root() {
        let root = HostRoot::new("/host").unwrap();
        assert_eq!(root.join("/etc/resolv.conf"), Path::new("/host/etc/resolv.conf"));
        assert_eq!(root.join("/"), Path::new("/host/"));
        assert!(HostRoot::new("host").is_err() && HostRoot::new("").is_err());
    }

    #[test]
    fn links_of_the_host_stay_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("run/containerd")).unwrap();
        fs::create_dir(root.join("var")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../../../run", root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let host = HostRoot::new(&root).unwrap();
        for path in ["/var/run/containerd", "/up/containerd", "run/containerd", "/../run/containerd"] {
            let found = host.locate(path).unwrap();
            assert_eq!(host.real_path(&found).unwrap(), Path::new("/run/containerd"), "{path}");
        }
        assert_eq!(host.real_path(&host.locate("/").unwrap()).unwrap(), Path::new("/"));
        assert_eq!(host.locate("/var/run/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(host.locate("/loop").is_err());
        let own = HostRoot::default();
        assert_eq!(own.real_path(&own.locate("/proc").unwrap()).unwrap(), Path::new("/proc"));
    }
}
