//! The user's credentials, by kubectl's rules.

use crate::fields::{Object, no_certificate};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use nodegate_program::os_words;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::HashMap;
use std::path::Path;

/// The versions of credential plugins that kubectl runs.
const PLUGIN_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Gives the configuration this user. Afterwards, the user has at most one of token and token file.
pub(crate) fn add(config: &mut Config, user: &Object<'_>, directory: &Path) -> Result<(), String> {
    let mut found = AuthInfo::default();
    impersonation(&mut found, user)?;
    let (certificate, key) =
        (user.data("client-certificate", directory)?, user.data("client-key", directory)?);
    if certificate.is_some() && key.is_none() {
        return Err(user.wrong("client-certificate", "needs a client-key"));
    }
    for field in ["username", "password", "auth-provider"] {
        // Kubeconfigs of old clusters have them beside a certificate.
        if certificate.is_none() && user.value(field).is_some_and(|value| *value != "") {
            return Err(user.wrong(field, "is not supported; give a token, a client-certificate or exec"));
        }
    }
    found.exec = plugin(user, directory)?;
    // kubectl sends no credentials without TLS; here a server with http:// gets those that its kubeconfig has.
    if let Some((certificate, key)) = certificate.zip(key) {
        if !CertificateDer::pem_slice_iter(&certificate).any(|found| found.is_ok()) {
            return Err(user.wrong("client-certificate", no_certificate(&certificate)));
        }
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(user.wrong(
                "client-key",
                "has no private key in PEM form, or an encrypted one; give one without a password",
            ));
        }
        found.client_certificate_data = Some(STANDARD.encode(certificate));
        found.client_key_data = Some(STANDARD.encode(key).into());
    }
    add_token(&mut found, user, directory)?;
    if found.token.is_some() || found.token_file.is_some() {
        found.exec = None;
    }
    config.auth_info = found;
    Ok(())
}

/// Adds the token of the file, which counts for more than one in the kubeconfig if it can be read.
fn add_token(found: &mut AuthInfo, user: &Object<'_>, directory: &Path) -> Result<(), String> {
    let (token, file) = (user.text("token")?, user.path("tokenFile", directory)?);
    if token.as_ref().is_some_and(|token| token.chars().any(char::is_control)) {
        return Err(user.wrong("token", "has a character that no token has, such as a line break"));
    }
    let unusable = file.as_ref().and_then(|file| match std::fs::read_to_string(file) {
        Ok(text) => text.trim().is_empty().then(|| "it is empty".to_owned()),
        Err(error) => Some(os_words(&error)),
    });
    match (file, unusable) {
        (Some(file), None) => found.token_file = Some(file.display().to_string()),
        (Some(file), Some(why)) if token.is_none() => return Err(user.unreadable("tokenFile", &file, &why)),
        _ => found.token = token.map(Into::into),
    }
    Ok(())
}

fn impersonation(found: &mut AuthInfo, user: &Object<'_>) -> Result<(), String> {
    let (groups, uid) = (user.texts("as-groups")?, user.text("as-uid")?);
    let extra: HashMap<String, Vec<String>> = user.get("as-user-extra", "lists of texts")?;
    found.impersonate = user.text("as")?;
    let has_more = uid.is_some() || !groups.is_empty() || !extra.is_empty();
    if has_more && found.impersonate.is_none() {
        return Err(user.wrong("as", "is missing: as-uid, as-groups and as-user-extra need it"));
    }
    found.impersonate_uid = uid;
    found.impersonate_groups = Some(groups).filter(|groups| !groups.is_empty());
    found.impersonate_user_extra = Some(extra).filter(|extra| !extra.is_empty());
    Ok(())
}

fn plugin(user: &Object<'_>, directory: &Path) -> Result<Option<ExecConfig>, String> {
    let Some(exec) = user.object("exec")? else { return Ok(None) };
    let command = exec.text("command")?.ok_or_else(|| exec.wrong("command", "is missing"))?;
    let version = exec.text("apiVersion")?.ok_or_else(|| exec.wrong("apiVersion", "is missing"))?;
    if !PLUGIN_VERSIONS.contains(&version.as_str()) {
        return Err(exec
            .wrong("apiVersion", format_args!("is {version}, and takes {}", PLUGIN_VERSIONS.join(" or "))));
    }
    let mode = match exec.text("interactiveMode")?.as_deref() {
        Some("Never") => ExecInteractiveMode::Never,
        Some("Always") => ExecInteractiveMode::Always,
        Some("IfAvailable") => ExecInteractiveMode::IfAvailable,
        None if version != PLUGIN_VERSIONS[0] => ExecInteractiveMode::IfAvailable,
        other => {
            let takes = format!("is {}, and takes Never, IfAvailable or Always", other.unwrap_or("missing"));
            return Err(exec.wrong("interactiveMode", takes));
        }
    };
    // As in kubectl, a path begins at the directory of the kubeconfig; a plain name is looked up in PATH.
    let is_path = command.contains(std::path::MAIN_SEPARATOR);
    let command = if is_path { directory.join(&command).display().to_string() } else { command };
    Ok(Some(ExecConfig {
        api_version: Some(version),
        command: Some(command),
        args: Some(exec.texts("args")?),
        env: exec.get("env", "a list of names with values")?,
        install_hint: exec.text("installHint")?,
        interactive_mode: Some(mode),
        provide_cluster_info: exec.get("provideClusterInfo", "true or false")?,
        ..ExecConfig::default()
    }))
}
