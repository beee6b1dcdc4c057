//! One GET to a server of the operator's choice, on a connection of its own: to a component of this node, or to an API
//! server.

use crate::client::{AGENT, connector, found, http_client, unusable};
use crate::credentials;
use crate::failure_reason::find;
use crate::resolve::NotResolved;
use crate::tls_refusal::mistake;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use kube::Config;
use kube::client::Body;
use kube::config::AuthInfo;
use nodegate_program::last_cause;
use nodegate_readiness::Reason;
use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;

/// The name that every API server's certificate has, whatever its address: pods reach it by this name.
const API_SERVER: &str = "kubernetes.default.svc";

/// The other end of a request.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A server without TLS.
    Plain,
    /// A server without TLS at this address of this host. The connection also comes from it, so that no other machine
    /// can answer.
    Own(IpAddr),
    /// An API server, at any address.
    ApiServer {
        /// True to speak for the agent; else neither a token nor a client certificate is shown.
        as_agent: bool,
    },
}

/// The reason why there is no answer.
#[derive(Debug)]
pub enum GetError {
    /// The name of the host has no address.
    NotResolved(String),
    /// The connection could not be made.
    NotConnected(io::Error),
    /// The server or the credentials can't be used.
    Unusable(Reason),
    /// The connection broke, or the answer is not HTTP.
    Broken(Box<dyn StdError + Send + Sync>),
}

/// Converts the reason why there is no client.
impl From<String> for GetError {
    fn from(error: String) -> Self {
        Self::Unusable(Reason::new("NoCredentials").detail(error))
    }
}

/// Requests a URL, and reads at most `most` bytes of the answer's body. `header` replaces the usual one of that name.
/// The files of the credentials are read again each time. Dropping the future closes the connection.
pub async fn get(
    url: &Uri,
    peer: Peer,
    header: Option<(HeaderName, HeaderValue)>,
    most: usize,
) -> Result<Response<Bytes>, GetError> {
    let mut tcp = connector();
    tcp.set_connect_timeout(None);
    if let Peer::Own(address) = peer {
        tcp.set_local_address(Some(address));
    }
    let (config, authorization) = verification(url, peer).await?;
    let mut request =
        Request::get(url).body(Body::empty()).map_err(|error| GetError::Broken(error.into()))?;
    let [any, close] = ["*/*", "close"].map(HeaderValue::from_static);
    let usual = [(USER_AGENT, AGENT), (ACCEPT, any), (CONNECTION, close)];
    let authorization = authorization.map(|token| (AUTHORIZATION, token));
    for (name, value) in usual.into_iter().chain(authorization).chain(header) {
        request.headers_mut().insert(name, value);
    }
    let answer = http_client(&config, tcp)?.request(request).await.map_err(failed)?;
    let (head, mut body) = answer.into_parts();
    let mut read = Vec::new();
    while read.len() < most {
        let Some(frame) = body.frame().await else { break };
        if let Some(data) = frame.map_err(|error| GetError::Broken(error.into()))?.data_ref() {
            read.extend(data.iter().take(most - read.len()));
        }
    }
    Ok(Response::from_parts(head, read.into()))
}

/// Returns how the peer is verified, and the `Authorization` header if the caller has a token. A verified peer has a
/// certificate of the cluster's CA; an `insecure-skip-tls-verify` of the kubeconfig does not count.
async fn verification(url: &Uri, peer: Peer) -> Result<(Config, Option<HeaderValue>), GetError> {
    let Peer::ApiServer { as_agent } = peer else {
        let mut config = Config::new(url.clone());
        config.root_cert = Some(Vec::new());
        return Ok((config, None));
    };
    let mut config = found()?.config;
    (config.accept_invalid_certs, config.proxy_url) = (false, None);
    config.tls_server_name = Some(API_SERVER.to_owned());
    // A file without a certificate verifies no server, either.
    if config.root_cert.as_ref().is_none_or(Vec::is_empty) {
        return Err("the credentials name no certificate authority".to_owned().into());
    }
    if !as_agent {
        config.auth_info = AuthInfo::default();
    }
    let (token, _) = credentials::load(&mut config.auth_info).await.map_err(unusable)?;
    Ok((config, token.map(|token| token.header())))
}

fn failed(error: legacy::Error) -> GetError {
    match find::<rustls::Error>(&error) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            let (kind, detail) = (mistake(why).0, why.to_string());
            let reason = Reason::new("Certificate").name(kind);
            // Some kinds have no more to say.
            return GetError::Unusable(if detail == kind { reason } else { reason.detail(detail) });
        }
        Some(other) => return GetError::Unusable(Reason::new("TLS").detail(other)),
        None => {}
    }
    if let Some(NotResolved(why)) = find(&error) {
        return GetError::NotResolved(why.clone());
    }
    if error.is_connect() {
        return GetError::NotConnected(
            innermost(&error).unwrap_or_else(|| io::Error::other(last_cause(&error))),
        );
    }
    GetError::Broken(error.into())
}

/// Returns the kernel's error, or that of the last `io::Error` that wraps no other error.
fn innermost(error: &(dyn StdError + 'static)) -> Option<io::Error> {
    let found = find::<io::Error>(error)?;
    match (found.raw_os_error(), found.get_ref()) {
        (Some(code), _) => Some(io::Error::from_raw_os_error(code)),
        (None, Some(wrapped)) if wrapped.is::<io::Error>() => innermost(wrapped),
        (None, _) => Some(io::Error::new(found.kind(), found.to_string())),
    }
}
