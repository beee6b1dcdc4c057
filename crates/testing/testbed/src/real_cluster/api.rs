//! Requests to the real API servers, as the administrator.

use crate::programs::system;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The administrator's access to the API servers. It uses no cable of the agents.
#[derive(Clone, Debug)]
pub struct Api {
    pki: PathBuf,
}

pub(super) const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";

const A: &str = "https://10.10.0.1:6443";
const B: &str = "https://10.10.0.2:6443";

impl Api {
    pub(super) fn new(pki: PathBuf) -> Self {
        Self { pki }
    }

    /// Sends a GET to API server A. Any answer but a 2xx is an error with that answer.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        self.send(A, "GET", path, None)
    }

    pub fn get_from_b(&self, path: &str) -> Result<Value, String> {
        self.send(B, "GET", path, None)
    }

    pub fn delete(&self, path: &str) -> Result<Value, String> {
        self.send(A, "DELETE", path, None)
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.send(A, "POST", path, Some((JSON, object)))
    }

    /// Patches an object through API server A. `kind` is the content type of the patch.
    pub fn patch(&self, path: &str, kind: &str, patch: &Value) -> Result<Value, String> {
        self.send(A, "PATCH", path, Some((kind, patch)))
    }

    /// Returns curl with the administrator's credentials, for requests that should fail.
    pub fn curl(&self) -> Command {
        let mut curl = system("curl");
        for (flag, file) in [("--cacert", "ca.crt"), ("--cert", "admin.crt"), ("--key", "admin.key")] {
            curl.arg(flag).arg(self.pki.join(file));
        }
        curl
    }

    fn send(
        &self,
        server: &str,
        verb: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, String> {
        let mut curl = self.curl();
        curl.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "10", "--request", verb]);
        if let Some((kind, body)) = body {
            curl.args(["--header", &format!("Content-Type: {kind}"), "--data-binary", &body.to_string()]);
        }
        let output = curl.arg(format!("{server}{path}")).output().expect("curl is needed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        if !output.status.success() {
            return Err(format!("{verb} {path}: {error} {out}"));
        }
        Ok(serde_json::from_str(&out).unwrap_or(Value::String(out)))
    }
}
