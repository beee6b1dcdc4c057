//! The server, and how it is reached and verified.

use crate::fields::{Object, no_certificate};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::ExecAuthCluster;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;

/// The server that kubectl uses for a cluster without one.
const DEFAULT_SERVER: &str = "http://localhost:8080";
/// The schemes of proxies that kubectl accepts.
const PROXIES: [&str; 3] = ["http", "https", "socks5"];

/// Returns the configuration of a cluster, without a user.
pub(crate) fn config(cluster: &Object<'_>, directory: &Path) -> Result<Config, String> {
    let authority = cluster.data("certificate-authority", directory)?;
    let skips = cluster.get("insecure-skip-tls-verify", "true or false")?;
    if skips && authority.is_some() {
        let why = "is true beside a certificate-authority; give one of them";
        return Err(cluster.wrong("insecure-skip-tls-verify", why));
    }
    let given = cluster.text("server")?.unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    let server = server(&given).ok_or_else(|| {
        cluster.wrong("server", format_args!("{given:?} is no URL such as https://10.0.0.1:6443"))
    })?;
    let mut config = Config::new(server);
    config.accept_invalid_certs = skips;
    config.tls_server_name = cluster.text("tls-server-name")?;
    config.root_cert = authority.map(|pem| certificates(cluster, &pem)).transpose()?;
    if config.cluster_url.scheme_str() == Some("http") {
        // Without TLS, kube would still read all CAs of the machine, at each connection.
        config.root_cert = Some(Vec::new());
    }
    config.proxy_url = proxy(cluster, &config.cluster_url)?;
    Ok(config)
}

/// Returns the URL of a server. As in kubectl, one without a scheme has `http`.
fn server(given: &str) -> Option<Uri> {
    let given = given.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let url = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let url: Uri = url.parse().ok()?;
    let is_usable = matches!(url.scheme_str(), Some("http" | "https"))
        && url.host().is_some_and(|host| !host.is_empty())
        && url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    is_usable.then_some(url)
}

/// Returns the certificates of a bundle that can sign a server's. As in Go, others don't count.
fn certificates(cluster: &Object<'_>, pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let usable = |certificate: &CertificateDer<'_>| {
        RootCertStore::empty().add(certificate.clone().into_owned()).is_ok()
    };
    let all = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let found: Vec<_> = all.filter(usable).map(|certificate| certificate.to_vec()).collect();
    if found.is_empty() {
        return Err(cluster.wrong("certificate-authority", no_certificate(pem)));
    }
    Ok(found)
}

/// Returns the proxy of the cluster, or that of the environment by Go's rules.
fn proxy(cluster: &Object<'_>, server: &Uri) -> Result<Option<Uri>, String> {
    let (setting, given) = match cluster.text("proxy-url")? {
        Some(given) => (format!("{cluster}: proxy-url"), given),
        None => match of_environment(server) {
            Some((name, given)) if given.contains("://") => (name.to_owned(), given),
            Some((name, given)) => (name.to_owned(), format!("http://{given}")),
            None => return Ok(None),
        },
    };
    let is_proxy =
        |url: &Uri| url.host().is_some() && url.scheme_str().is_some_and(|scheme| PROXIES.contains(&scheme));
    let wrong = || format!("{setting} {given:?} is no URL of a proxy: http://, https:// or socks5://");
    given.parse().ok().filter(is_proxy).map(Some).ok_or_else(wrong)
}

/// Returns the proxy for this server in the environment, with its variable: none for a server on this machine.
fn of_environment(server: &Uri) -> Option<(&'static str, String)> {
    let variable = |name| Some((name, std::env::var(name).ok().filter(|value| !value.is_empty())?));
    let first = |names: [&'static str; 2]| names.into_iter().find_map(variable);
    let is_tls = server.scheme_str() == Some("https");
    let proxy = first(if is_tls { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] })?;
    let exempt = first(["NO_PROXY", "no_proxy"]).map_or(String::new(), |(_, list)| list);
    let exempt = format!("localhost,127.0.0.0/8,::1,{exempt}");
    let matcher = Matcher::builder().all("http://proxy").no(exempt).build();
    matcher.intercept(server).map(|_| proxy)
}

/// Tells a credential plugin of its cluster, if it wants to know.
pub(crate) fn add_to_plugin(config: &mut Config, cluster: &Object<'_>) {
    let (server, name) = (config.cluster_url.to_string(), config.tls_server_name.clone());
    let (skips, proxy) = (config.accept_invalid_certs, cluster.text("proxy-url").ok().flatten());
    let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) else { return };
    let extension = |extension: &Object<'_>| {
        extension.text("name").ok().flatten().as_deref() == Some("client.authentication.k8s.io/exec")
    };
    let extensions = cluster.objects("extensions").unwrap_or_default();
    let extension = extensions.iter().find(|one| extension(one)).and_then(|one| one.value("extension"));
    exec.cluster = Some(ExecAuthCluster {
        server: Some(server),
        insecure_skip_tls_verify: Some(skips),
        certificate_authority_data: cluster.data("certificate-authority", Path::new("")).ok().flatten(),
        proxy_url: proxy,
        tls_server_name: name,
        config: extension.cloned(),
    });
}
