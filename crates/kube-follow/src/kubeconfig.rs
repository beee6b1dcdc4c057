//! Reads the agent's kubeconfig.
//!
//! kube's own reader instantiates the YAML parser for each type of a kubeconfig. For the home directory it
//! queries the user database, for which a static binary includes all plugins. Together they are a tenth of
//! the agent. This module parses YAML into one type, JSON's, and interprets it as kubectl does: a number in
//! place of text is that text.

use kube::config::{Kubeconfig, KubeconfigError};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The boolean fields of a kubeconfig. It has no numeric fields.
const BOOLEANS: [&str; 4] =
    ["insecure-skip-tls-verify", "disable-compression", "provideClusterInfo", "colors"];

/// The error of an unusable kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kubeconfig is missing, is no YAML or is inconsistent.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The file is YAML, but no kubeconfig.
    #[error("failed to parse kubeconfig YAML: {0}")]
    Structure(#[from] serde_json::Error),
}

/// Reads the files of `KUBECONFIG`, in which the first value counts, or `~/.kube/config`.
pub(crate) fn read() -> Result<Kubeconfig, ReadError> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let mut files: Vec<PathBuf> = env::split_paths(&named).filter(|file| file != Path::new("")).collect();
    if files.is_empty() {
        let home = env::var_os("HOME").ok_or(KubeconfigError::FindPath)?;
        files.push(Path::new(&home).join(".kube/config"));
    }
    files.iter().try_fold(Kubeconfig::default(), |merged, file| Ok(merged.merge(read_file(file)?)?))
}

fn read_file(file: &Path) -> Result<Kubeconfig, ReadError> {
    let text =
        fs::read_to_string(file).map_err(|error| KubeconfigError::ReadConfig(error, file.to_owned()))?;
    let mut kubeconfig = parse(&text)?;
    make_absolute(&mut kubeconfig, file.parent().unwrap_or(Path::new("")));
    Ok(kubeconfig)
}

fn parse(text: &str) -> Result<Kubeconfig, ReadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = serde_saphyr::from_multiple::<Value>(text);
    let documents = documents.map_err(|error| KubeconfigError::Parse(Box::new(error)))?;
    documents.into_iter().try_fold(Kubeconfig::default(), |merged, mut document| {
        make_text(&mut document);
        Ok(merged.merge(serde_json::from_value(document)?)?)
    })
}

fn make_text(value: &mut Value) {
    match value {
        Value::Number(number) => *value = Value::String(number.to_string()),
        Value::Bool(truth) => *value = Value::String(truth.to_string()),
        Value::Array(values) => values.iter_mut().for_each(make_text),
        Value::Object(fields) => {
            let texts = fields.iter_mut().filter(|(name, _)| !BOOLEANS.contains(&name.as_str()));
            texts.for_each(|(_, value)| make_text(value));
        }
        Value::Null | Value::String(_) => {}
    }
}

/// Makes paths absolute. Files are relative to the kubeconfig's directory, and so is a program unless it is
/// searched for in `PATH`.
fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) {
    let absolute = |file: &mut Option<String>| {
        let path = file.as_deref().map(|file| directory.join(file));
        if let Some(path) = path.and_then(|path| path.into_os_string().into_string().ok()) {
            *file = Some(path);
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec.command.as_ref().is_some_and(|command| command.contains('/'))
        {
            absolute(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: 2024
contexts:
- name: 2024
  context: {cluster: true, user: "007", namespace: shop}
clusters:
- name: true
  cluster:
    server: https://[fd00::1]:6443
    insecure-skip-tls-verify: true
    certificate-authority: pki/ca.crt
    extensions: [{name: minikube, extension: {since: 1}}]
users:
- name: "007"
  user:
    token: 123456
    tokenFile: /run/token
    client-certificate: client.crt
    exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1, provideClusterInfo: false, env: [{name: A, value: 1}]}
"#;

    /// kube's result is the reference, except for values that its types refuse.
    #[test]
    fn it_reads_what_kube_reads() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, TEXT).unwrap();
        let (ours, kubes) = (read_file(&file).unwrap(), Kubeconfig::read_from(&file).unwrap());
        let plain = |kubeconfig: &Kubeconfig| {
            let mut value = serde_json::to_value(kubeconfig).unwrap();
            make_text(&mut value);
            value
        };
        assert_eq!(plain(&ours), plain(&kubes));
        let user = ours.auth_infos[0].auth_info.as_ref().unwrap();
        let expected = directory.path().join("client.crt");
        assert_eq!(user.client_certificate.as_deref(), expected.to_str());
        assert_eq!(user.token_file.as_deref(), Some("/run/token"));
        assert_eq!(ours.current_context.as_deref(), Some("2024"));
    }

    #[test]
    fn documents_and_empty_files_are_taken_as_kube_takes_them() {
        let merged = parse("current-context: a\n---\ncurrent-context: b\nkind: Config\n").unwrap();
        assert_eq!((merged.current_context.as_deref(), merged.kind.as_deref()), (Some("a"), Some("Config")));
        assert_eq!(parse("").unwrap().current_context, None);
        assert_eq!(parse("clusters: null\ncurrent-context:\n").unwrap().current_context, None);
        assert_eq!(parse("\u{feff}current-context: a").unwrap().current_context.as_deref(), Some("a"));
    }

    #[test]
    fn what_is_none_says_so() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("clusters: [").starts_with("failed to parse kubeconfig YAML: "));
        let no_list = said("clusters: 5");
        assert!(no_list.starts_with("failed to parse kubeconfig YAML: invalid type: string"), "{no_list}");
        assert!(said("a: 1\na: 2").contains("duplicate"), "{}", said("a: 1\na: 2"));
        let missing = read_file(Path::new("/nowhere/config")).unwrap_err().to_string();
        assert!(missing.starts_with("failed to read kubeconfig from '\"/nowhere/config\"': "), "{missing}");
    }
}
