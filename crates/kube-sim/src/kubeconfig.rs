//! Kubeconfig files for kubectl and client libraries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A kubeconfig for one server and token, with the CA inside.
pub(crate) fn render(url: &str, ca_pem: Option<&str>, token: &str) -> String {
    let ca = ca_pem
        .map(|pem| format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)))
        .unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters:\n- name: sim\n  cluster:\n    server: {url}{ca}\n\
         contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n\
         users:\n- name: sim\n  user:\n    token: {}\npreferences: {{}}\n",
        serde_json::Value::String(token.to_owned())
    )
}
