//! Kubeconfigs: the test reads them with kubectl and writes them with the proxy in between.

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
        Server::parse(&url).unwrap_or_else(|| panic!("{url} is no URL of an API server"))
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

impl Server {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let usual = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        Some(Self { host, port, scheme: scheme.to_owned(), path: path.trim_end_matches('/').to_owned() })
    }
}

#[test]
fn server_urls_of_kubeconfigs_are_parsed() {
    for (url, host, port, path) in [
        ("https://10.0.0.1:6443", "10.0.0.1", 6443, ""),
        ("https://api.example.com", "api.example.com", 443, ""),
        ("https://[fd00::1]:6443", "fd00::1", 6443, ""),
        ("https://[fd00::1]/", "fd00::1", 443, ""),
        ("https://rancher.example.com/k8s/clusters/c-1", "rancher.example.com", 443, "/k8s/clusters/c-1"),
        ("http://127.0.0.1:8080", "127.0.0.1", 8080, ""),
    ] {
        let server = Server::parse(url).unwrap();
        assert_eq!((&*server.host, server.port, &*server.path), (host, port, path), "{url}");
    }
}
