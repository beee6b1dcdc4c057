//! `container_runtime`: the container runtime of this node answers, and says that it and its network are
//! ready.

mod cri;

use self::cri::{NOT_CRI, RuntimeStatus};
use crate::check::{Check, Definition, KnownNode, Run, Timing};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::{HostRoot, by_descriptor};
use crate::options::Key;
use crate::url::io_reason;
use nodegate_readiness::{Outcome, Reason};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixStream;

/// The default sockets. Those that only a kubelet uses come first: a containerd at the usual path may be
/// Docker's.
const USUAL: [&str; 8] = [
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/var/snap/k8s/common/run/containerd.sock",
    "/run/containerd/containerd.sock",
];

/// The conditions that the kubelet requires, too. Runtimes have more; containerd 2 has one about deprecated
/// features.
const REQUIRED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

const SOCKET: Key<PathBuf> = Key { name: "socket", parse: socket };

pub(crate) const DEFINITION: Definition = Definition {
    name: "container_runtime",
    options: &[&SOCKET],
    timing: Timing::USUAL,
    new: |context| {
        let set = context.options.get(&SOCKET).map(|path| vec![path]);
        Arc::new(ContainerRuntime {
            host: context.host.clone(),
            paths: set.unwrap_or_else(|| USUAL.iter().map(PathBuf::from).collect()),
            thread: DedicatedThread::new("cri_socket"),
        })
    },
};

fn socket(text: &str) -> Result<PathBuf, String> {
    // crictl and the kubelet write the scheme.
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
    let takes = || "takes a path of the host, e.g. /run/crio/crio.sock".to_owned();
    path.is_absolute().then(|| path.to_owned()).ok_or_else(takes)
}

struct ContainerRuntime {
    host: HostRoot,
    /// The paths of possible sockets, in the order of preference.
    paths: Vec<PathBuf>,
    /// Accesses the sockets, since a configured one may be on a dead filesystem.
    thread: DedicatedThread,
}

impl Check for ContainerRuntime {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.ask().await.map_or_else(Outcome::Fail, |status| judge(&status)) })
    }
}

impl ContainerRuntime {
    /// Calls the first runtime that exists. It skips one that speaks gRPC but not CRI, unless there is no
    /// other.
    async fn ask(&self) -> Result<RuntimeStatus, Reason> {
        let mut not_cri = None;
        for (path, file) in self.sockets().await? {
            let at = |reason: Reason| reason.name(&path.display().to_string());
            // The path may exceed the 107 bytes of a socket address, and its links are those of the host.
            let stream = async { UnixStream::connect(by_descriptor(&file?)).await };
            match cri::status(stream.await.map_err(|error| at(socket_reason(&error)))?).await {
                Err(error) if error.0.code() == NOT_CRI => not_cri = not_cri.or(Some(at(error.0))),
                result => return result.map_err(|error| at(error.0)),
            }
        }
        Err(not_cri.unwrap_or_else(|| {
            Reason::new("NoSocket").name(&match self.paths.as_slice() {
                [path] => path.display().to_string(),
                paths => format!("at none of the {} usual paths", paths.len()),
            })
        }))
    }

    /// Returns the sockets that exist, and those that can't be accessed.
    async fn sockets(&self) -> Result<Vec<(PathBuf, io::Result<OwnedFd>)>, Reason> {
        let (host, paths) = (self.host.clone(), self.paths.clone());
        let look = move || {
            let found = paths.into_iter().map(|path| (locate(&host, &path), path));
            let found = found.filter(|(file, _)| !file.as_ref().is_err_and(is_absence));
            found.map(|(file, path)| (path, file)).collect()
        };
        self.thread.run(look).await
    }
}

/// Returns the reason of the kernel's error about a socket, without its path.
fn socket_reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reason::new("PermissionDenied"),
        // The socket existed a moment ago.
        io::ErrorKind::NotFound => Reason::new("NoSocket"),
        // The queue of the listener is full, because it hangs and accepts no connections.
        io::ErrorKind::WouldBlock => Reason::new("NotAccepting"),
        _ => io_reason(error),
    }
}

/// Opens a path; if one below `/run` is missing, tries `/var/run`, which on some hosts is no link to `/run`.
fn locate(host: &HostRoot, path: &Path) -> io::Result<OwnedFd> {
    match (host.locate(path), path.strip_prefix("/run")) {
        (Err(error), Ok(below)) if is_absence(&error) => host.locate(Path::new("/var/run").join(below)),
        (result, _) => result,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn judge(status: &RuntimeStatus) -> Outcome {
    let failing = REQUIRED.iter().filter_map(|required| {
        match status.conditions.iter().find(|condition| condition.r#type == *required) {
            None => Some(Reason::new(*required).detail("not reported")),
            Some(condition) if condition.status => None,
            Some(condition) if condition.reason.is_empty() && condition.message.is_empty() => {
                Some(Reason::new(format!("{required}=False")))
            }
            Some(condition) => {
                let words =
                    [&condition.reason, &condition.message].into_iter().filter(|word| !word.is_empty());
                Some(words.fold(Reason::new(*required), |reason, word| reason.name(word)))
            }
        }
    });
    Reason::join(failing, "; ").into()
}

/// The parser of a container runtime's answers, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::{cri, judge};
    use nodegate_readiness::Outcome;

    /// Returns the outcome of one frame.
    pub fn frame(bytes: &[u8]) -> Outcome {
        let answer = cri::unframed(bytes).map(|response| response.status.unwrap_or_default());
        answer.map_or_else(|error| Outcome::Fail(error.0), |status| judge(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::cri::RuntimeCondition;
    use super::*;
    use crate::check::{Context, DEFAULT_TIMEOUT};
    use crate::options::Options;

    fn status(conditions: &[(&str, bool, &str, &str)]) -> RuntimeStatus {
        let condition = |(kind, status, reason, message): &(&str, bool, &str, &str)| RuntimeCondition {
            r#type: (*kind).to_owned(),
            status: *status,
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
        };
        RuntimeStatus { conditions: conditions.iter().map(condition).collect() }
    }

    fn fail(reason: &str) -> Outcome {
        Outcome::Fail(Reason::parse(reason))
    }

    #[test]
    fn both_conditions_are_needed_and_no_other() {
        let runtime = ("RuntimeReady", true, "", "");
        let network = ("NetworkReady", true, "", "");
        let deprecated = ("ContainerdHasNoDeprecationWarnings", false, "DeprecationWarning", "…");
        assert_eq!(judge(&status(&[runtime, network, deprecated])), Outcome::Pass);
        let no_cni = ("NetworkReady", false, "NetworkPluginNotReady", "cni plugin not initialized");
        let without = "NetworkReady: NetworkPluginNotReady: cni plugin not initialized";
        assert_eq!(judge(&status(&[runtime, no_cni])), fail(without));
        let both = status(&[no_cni, ("RuntimeReady", false, "", "")]);
        let both = judge(&both);
        let both = both.reason().unwrap();
        assert_eq!(both.as_str(), format!("RuntimeReady=False; {without}"));
        assert_eq!(both.label(), "RuntimeReady=False");
        assert_eq!(
            judge(&RuntimeStatus::default()),
            fail("RuntimeReady: not reported; NetworkReady: not reported")
        );
    }

    #[tokio::test]
    async fn without_a_socket_the_check_fails() {
        let empty = tempfile::tempdir().unwrap();
        let (host, options) = (HostRoot::new(empty.path()).unwrap(), Options::default());
        let context = Context { host: &host, options: &options, timeout: DEFAULT_TIMEOUT };
        let outcome = (DEFINITION.new)(&context).run(&KnownNode::default()).await;
        assert_eq!(outcome, fail("NoSocket: at none of the 8 usual paths"));
    }

    #[test]
    fn a_socket_is_a_path_of_the_host() {
        for good in ["/run/x.sock", "unix:///run/x.sock"] {
            assert_eq!(socket(good), Ok("/run/x.sock".into()));
        }
        for bad in ["", "x.sock", "unix://x", "tcp://127.0.0.1:1"] {
            assert!(socket(bad).is_err(), "{bad}");
        }
    }
}
