//! Kubeconfig files for kubectl and client libraries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Returns a kubeconfig for one server and user, with the CA inside. It is JSON, which is valid YAML.
pub(crate) fn render(url: &str, ca_pem: Option<&str>, user: &Value) -> String {
    let ca = ca_pem
        .map(|pem| format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)))
        .unwrap_or_default();
    let lines = user.as_object().into_iter().flatten().map(|(key, value)| format!("\n    {key}: {value}"));
    let user: String = lines.collect();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters:\n- name: sim\n  cluster:\n    server: {url}{ca}\n\
         contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n\
         users:\n- name: sim\n  user:{user}\npreferences: {{}}\n"
    )
}
