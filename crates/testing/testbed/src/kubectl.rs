//! The real kubectl, as an operator runs it.

use crate::programs::try_run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// Returns kubectl with this kubeconfig, and its discovery cache in the directory.
    pub fn new(kubeconfig: &Path, directory: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), cache: directory.join("kubectl-cache") }
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl. Returns its output in case of success, and its error otherwise.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, String> {
        let mut command = Command::new("kubectl");
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache);
        // kubectl must not use a pod's own credentials here.
        try_run(command.env_remove("KUBERNETES_SERVICE_HOST")).map_err(|error| error.trim().to_owned())
    }

    /// Runs kubectl. Panics if it fails.
    #[track_caller]
    pub fn must<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> String {
        self.run(args).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }
}
