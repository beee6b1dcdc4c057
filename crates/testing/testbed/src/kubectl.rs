//! The real kubectl, as an operator runs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// kubectl with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// Returns kubectl with this kubeconfig. The directory holds its discovery cache, instead of the caller's
    /// home.
    pub fn new(kubeconfig: &Path, directory: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), cache: directory.join("kubectl-cache") }
    }

    /// Returns the path of the kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl. Returns its output in case of success, and its error otherwise.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, String> {
        let mut command = Command::new("kubectl");
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache);
        // kubectl must not use a pod's own credentials here.
        let output = command.env_remove("KUBERNETES_SERVICE_HOST").output();
        let output = output.expect("kubectl is needed: hack/install installs it");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(said(&output.stdout))
        } else {
            Err(said(&output.stderr).trim().to_owned())
        }
    }

    /// Runs kubectl. Panics if it fails.
    #[track_caller]
    pub fn must<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> String {
        self.run(args).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }
}
