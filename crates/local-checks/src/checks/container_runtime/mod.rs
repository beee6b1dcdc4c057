//! `container_runtime`: the container runtime of this node answers, and says that it and its network are
//! ready.

pub(crate) mod cri;

use self::cri::{NOT_CRI, RuntimeStatus};
use crate::check::{Check, Context, KnownNode, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::{HostRoot, by_descriptor, is_absence};
use crate::http_get::io_reason;
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

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let set = context.settings.take("socket", socket).map(|path| vec![path]);
    Arc::new(ContainerRuntime {
        host: context.host.clone(),
        // On some hosts, /var/run is no link to /run.
        paths: set.unwrap_or_else(|| {
            USUAL.iter().flat_map(|path| [PathBuf::from(path), format!("/var{path}").into()]).collect()
        }),
        thread: DedicatedThread::new("cri_socket"),
    })
}

fn socket(text: &str) -> Result<PathBuf, &'static str> {
    // crictl and the kubelet write the scheme.
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
    path.is_absolute().then(|| path.to_owned()).ok_or("takes a path of the host, e.g. /run/crio/crio.sock")
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
            match cri::status(stream.await.map_err(|error| at(io_reason(&error)))?).await {
                Err(error) if error.0.code() == NOT_CRI => not_cri = not_cri.or(Some(at(error.0))),
                result => return result.map_err(|error| at(error.0)),
            }
        }
        Err(not_cri.unwrap_or_else(|| {
            Reason::new("NoSocket").name(&match self.paths.as_slice() {
                [path] => path.display().to_string(),
                _ => "at none of the usual paths".to_owned(),
            })
        }))
    }

    /// Returns the sockets that exist, and those that can't be accessed.
    async fn sockets(&self) -> Result<Vec<(PathBuf, io::Result<OwnedFd>)>, Reason> {
        let (host, paths) = (self.host.clone(), self.paths.clone());
        let look = move || {
            let located = paths.into_iter().map(|path| (host.locate(&path), path));
            let found = located.filter(|(file, _)| !file.as_ref().is_err_and(is_absence));
            found.map(|(file, path)| (path, file)).collect()
        };
        self.thread.run(look).await
    }
}

pub(crate) fn judge(status: &RuntimeStatus) -> Outcome {
    let failing = REQUIRED.iter().filter_map(|required| {
        let Some(condition) = status.conditions.iter().find(|condition| condition.r#type == *required) else {
            return Some(Reason::new(*required).detail("not reported"));
        };
        if condition.status {
            return None;
        }
        let words = [&condition.reason, &condition.message].into_iter().filter(|word| !word.is_empty());
        let reason = words.fold(Reason::new(*required), |reason, word| reason.name(word));
        let has_words = reason.as_str() != *required;
        Some(if has_words { reason } else { Reason::new(format!("{required}=False")) })
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
        let both = judge(&status(&[no_cni, ("RuntimeReady", false, "", "")]));
        let both = both.reason().unwrap();
        assert_eq!(both.as_str(), format!("RuntimeReady=False; {without}"));
        assert_eq!(both.label(), "RuntimeReady=False");
        let nothing = judge(&RuntimeStatus::default());
        assert_eq!(nothing, fail("RuntimeReady: not reported; NetworkReady: not reported"));
    }

    #[test]
    fn a_socket_is_a_path_of_the_host() {
        for good in ["/run/x.sock", "unix:///run/x.sock"] {
            assert_eq!(socket(good), Ok("/run/x.sock".into()));
        }
        assert!(socket("").is_err());
    }
}
