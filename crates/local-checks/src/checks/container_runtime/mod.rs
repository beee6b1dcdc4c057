//! `container_runtime`: the container runtime of this node answers, and reports itself and its network as
//! ready.

mod cri;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;

use self::cri::{CallError, RuntimeStatus};
use crate::dedicated_thread::{DedicatedThread, NoAnswer};
use crate::definition::Definition;
use crate::host_root::{HostRoot, by_descriptor};
use crate::interface::{Check, KnownNode, Run};
use crate::options::OptionKey;
use crate::timing::Timing;
use nodegate_readiness::{Outcome, Reason};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tokio::net::UnixStream;

/// The default sockets of the runtimes. The sockets that only a kubelet uses come first: a containerd at the
/// usual path may be Docker's, beside the one that k3s ships or below cri-dockerd.
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

/// The conditions that the kubelet, too, requires before it reports the node as Ready. Runtimes may have more
/// conditions; containerd 2 has one that is false when a deprecated feature is in use.
const REQUIRED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

const SOCKET: OptionKey = OptionKey::new::<Socket>("socket");

pub(crate) const DEFINITION: Definition = Definition {
    name: "container_runtime",
    options: &[SOCKET],
    timing: Timing::USUAL,
    new: |context| {
        let set = context.options.get::<Socket>(SOCKET.name()).map(|Socket(path)| vec![path]);
        Arc::new(ContainerRuntime {
            host: context.host.clone(),
            paths: set.unwrap_or_else(|| USUAL.iter().map(PathBuf::from).collect()),
            thread: DedicatedThread::new("cri_socket"),
        })
    },
};

/// The path of a socket in the operator's setting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket(PathBuf);

impl FromStr for Socket {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // crictl and the kubelet write the scheme.
        let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
        let fits = path.is_absolute();
        fits.then(|| Self(path.to_owned())).ok_or("takes a path of the host, e.g. /run/crio/crio.sock")
    }
}

struct ContainerRuntime {
    host: HostRoot,
    /// The paths of possible sockets, in the order of preference.
    paths: Vec<PathBuf>,
    /// Accesses the sockets, since a configured one may be on a dead filesystem.
    thread: DedicatedThread,
}

/// The error of a call to the runtime.
#[derive(Debug)]
enum AskError {
    NoAnswer(NoAnswer),
    NoSocket(String),
    Denied(PathBuf),
    Refused(PathBuf),
    NotAccepting(PathBuf),
    Io(PathBuf, io::Error),
    Call(PathBuf, CallError),
}

impl Check for ContainerRuntime {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            match self.ask().await {
                Ok(status) => judge(&status),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}

impl ContainerRuntime {
    /// Calls the first runtime that exists. It skips a socket whose server speaks gRPC but not CRI, such as
    /// Docker's containerd with CRI disabled, unless there is no other.
    async fn ask(&self) -> Result<RuntimeStatus, AskError> {
        let mut last = None;
        for (path, file) in self.sockets().await? {
            match Self::status(&path, file?).await {
                Err(error @ AskError::Call(_, CallError::NotCri)) => last = last.or(Some(error)),
                result => return result,
            }
        }
        Err(last.unwrap_or_else(|| self.none()))
    }

    /// Returns the sockets that exist, and those that can't be accessed.
    async fn sockets(&self) -> Result<Vec<(PathBuf, Result<OwnedFd, AskError>)>, NoAnswer> {
        let (host, paths) = (self.host.clone(), self.paths.clone());
        let look = move || {
            let mut found = Vec::new();
            for path in paths {
                match locate(&host, &path) {
                    Ok(file) => found.push((path, Ok(file))),
                    Err(error) if is_absence(&error) => {}
                    Err(error) => found.push((path.clone(), Err(AskError::of(path, error)))),
                }
            }
            found
        };
        self.thread.run(look).await
    }

    async fn status(path: &Path, file: OwnedFd) -> Result<RuntimeStatus, AskError> {
        // It connects by descriptor: the path may exceed the 107 bytes of a socket address, and its links are
        // those of the host.
        let stream = UnixStream::connect(by_descriptor(&file)).await;
        let stream = stream.map_err(|error| AskError::of(path.to_owned(), error))?;
        cri::status(stream).await.map_err(|error| AskError::Call(path.to_owned(), error))
    }

    fn none(&self) -> AskError {
        AskError::NoSocket(match self.paths.as_slice() {
            [path] => path.display().to_string(),
            paths => format!("at none of the {} usual paths", paths.len()),
        })
    }
}

/// Opens a path; if one below `/run` is missing, tries `/var/run`, which is a link to `/run` on most hosts,
/// and a directory of its own on some.
fn locate(host: &HostRoot, path: &Path) -> io::Result<OwnedFd> {
    match (host.locate(path), path.strip_prefix("/run")) {
        (Err(error), Ok(below)) if is_absence(&error) => host.locate(Path::new("/var/run").join(below)),
        (result, _) => result,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl AskError {
    /// Converts the kernel's error about a socket.
    fn of(path: PathBuf, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            io::ErrorKind::ConnectionRefused => Self::Refused(path),
            // It existed a moment ago.
            io::ErrorKind::NotFound => Self::NoSocket(path.display().to_string()),
            // The queue of the listener is full, because it hangs and accepts no connections.
            io::ErrorKind::WouldBlock => Self::NotAccepting(path),
            _ => Self::Io(path, error),
        }
    }
}

impl From<NoAnswer> for AskError {
    fn from(why: NoAnswer) -> Self {
        Self::NoAnswer(why)
    }
}

impl From<AskError> for Reason {
    fn from(error: AskError) -> Self {
        let at = |reason: Self, path: PathBuf| reason.name(&path.display().to_string());
        match error {
            AskError::NoAnswer(why) => why.into(),
            AskError::NoSocket(paths) => Self::new("NoSocket").name(&paths),
            AskError::Denied(path) => at(Self::new("PermissionDenied"), path),
            AskError::Refused(path) => at(Self::new("ConnectionRefused"), path),
            AskError::NotAccepting(path) => at(Self::new("NotAccepting"), path),
            AskError::Io(path, error) => {
                Self::new("ConnectionFailed").detail(format_args!("{} ({error})", path.display()))
            }
            AskError::Call(path, error) => at(error.into(), path),
        }
    }
}

/// Returns the outcome of the runtime's own status.
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

#[cfg(test)]
mod tests {
    use super::cri::RuntimeCondition;
    use super::*;

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
        let (host, options) = (HostRoot::new(empty.path()).unwrap(), crate::Options::default());
        let timeout = std::time::Duration::MAX;
        let context = crate::Context { host: &host, options: &options, timeout };
        let outcome = (DEFINITION.new)(&context).run(&KnownNode::default()).await;
        assert_eq!(outcome, fail("NoSocket: at none of the 8 usual paths"));
    }

    #[test]
    fn a_socket_is_a_path_of_the_host() {
        let path = Socket("/run/x.sock".into());
        assert_eq!("/run/x.sock".parse(), Ok(path.clone()));
        assert_eq!("unix:///run/x.sock".parse(), Ok(path));
        for bad in ["", "x.sock", "unix://x", "tcp://127.0.0.1:1"] {
            assert!(bad.parse::<Socket>().is_err(), "{bad}");
        }
    }
}
