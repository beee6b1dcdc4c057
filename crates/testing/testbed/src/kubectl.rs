//! The real kubectl, as a person runs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// It with somebody's credentials.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// With these credentials; what it has discovered is kept in the directory and not in the caller's home.
    pub fn new(kubeconfig: &Path, directory: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), cache: directory.join("kubectl-cache") }
    }

    /// Returns the credentials' file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs it; gives what it says, good or bad.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, String> {
        let mut command = Command::new("kubectl");
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache);
        // A pod's own credentials are not asked for here.
        let output = command.env_remove("KUBERNETES_SERVICE_HOST").output();
        let output = output.expect("kubectl is needed: hack/install-tools installs it");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(said(&output.stdout))
        } else {
            Err(said(&output.stderr).trim().to_owned())
        }
    }

    /// Runs it, and it must succeed.
    #[track_caller]
    pub fn must<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> String {
        self.run(args).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }
}
