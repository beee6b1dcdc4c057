//! Kubeconfigs: the test reads them with kubectl and writes them with the proxy in between.

use hyper::Uri;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The current context of a kubeconfig, with its certificates and keys inline.
pub(crate) struct Kubeconfig(Value);

/// The address of an API server.
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    scheme: String,
    path: String,
}

impl Kubeconfig {
    /// Reads a file as kubectl does.
    pub(crate) fn read(file: &Path) -> Self {
        let output = Command::new("kubectl")
            .args(["config", "view", "--raw", "--minify", "--flatten", "--output=json"])
            .env("KUBECONFIG", file)
            .output()
            .expect("kubectl is needed");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} is no usable kubeconfig: {text}", file.display());
        Self(serde_json::from_slice(&output.stdout).expect("kubectl writes JSON"))
    }

    fn cluster(&mut self) -> &mut Value {
        &mut self.0["clusters"][0]["cluster"]
    }

    /// Replaces the credentials by this token.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.0["users"][0]["user"] = json!({ "token": token });
        self
    }

    pub(crate) fn server(&mut self) -> Server {
        assert!(self.cluster()["proxy-url"].is_null(), "a kubeconfig with a proxy-url can't be used here");
        let url = self.cluster()["server"].as_str().expect("a kubeconfig names a server").to_owned();
        let url: Uri = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
        let scheme = url.scheme_str().expect("a server's URL has a scheme").to_owned();
        let host = url.host().expect("a server's URL has a host").trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        Server { host, port, scheme, path: url.path().trim_end_matches('/').to_owned() }
    }

    /// Redirects the kubeconfig to a port of this machine that leads to the same server. The client still
    /// verifies the certificate against the server's own name.
    pub(crate) fn by_way_of(mut self, port: u16) -> Self {
        let server = self.server();
        let cluster = self.cluster();
        cluster["server"] = json!(format!("{}://127.0.0.1:{port}{}", server.scheme, server.path));
        let verifies = cluster["insecure-skip-tls-verify"] != true;
        if server.scheme == "https" && verifies && cluster["tls-server-name"].is_null() {
            cluster["tls-server-name"] = json!(server.host);
        }
        self
    }

    /// Writes the kubeconfig into a directory, as JSON, which is valid YAML.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> PathBuf {
        let file = directory.join(name);
        std::fs::write(&file, self.0.to_string()).unwrap();
        file
    }
}
