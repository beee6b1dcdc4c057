//! One HTTP GET to an address on this node, for several checks.

use crate::check::KnownNode;
use crate::options::Key;
use crate::url::io_reason;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, Uri};
use nodegate_kube_follow::{GetError, Peer, find};
use nodegate_readiness::Reason;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of a body that is read; kube-proxy's is below 1 KiB.
pub const MAX_BODY: usize = 64 * 1024;

/// A request header in an operator's setting: `Host: app.example`. It replaces the usual one of that name.
pub(crate) type Header = (HeaderName, HeaderValue);

/// The setting that adds a header to the requests of a check.
pub(crate) const HEADER: Key<Header> = Key {
    name: "header",
    parse: |text| {
        let parse = || {
            let (name, value) = text.split_once(':')?;
            Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
        };
        parse().ok_or("takes a request header like Host: app.example".to_owned())
    },
};

/// Returns the reason of an answer with an unexpected status.
pub(crate) fn status_reason(status: StatusCode) -> Reason {
    Reason::new("HTTP").status(status.as_u16())
}

/// Requests a URL like [`nodegate_kube_follow::get`]: over a new connection each time, because a kept one would not
/// notice that nothing listens any more. The check's timeout limits it.
pub async fn get(
    url: &Uri,
    peer: Peer<'_>,
    header: Option<(HeaderName, HeaderValue)>,
    most: usize,
) -> Result<Response<Bytes>, HttpError> {
    Ok(nodegate_kube_follow::get(url, peer, header, most).await?)
}

/// The configured URL of a component of this node, or `/healthz` on a port of the first address that accepts.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort(pub(crate) Option<Uri>, pub(crate) u16);

impl LocalPort {
    /// Requests status and body like [`get`]. If no address accepts, the error is that of 127.0.0.1.
    pub(crate) async fn get(&self, node: &KnownNode, most: usize) -> Result<Response<Bytes>, HttpError> {
        if let Some(url) = &self.0 {
            return get(url, Peer::Plain, None, most).await;
        }
        let mut refused = None;
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        for address in loopback.into_iter().chain(node.internal_ips.iter().copied()) {
            let Ok(url) = format!("http://{}/healthz", SocketAddr::new(address, self.1)).parse() else {
                continue;
            };
            match get(&url, Peer::Own(address), None, most).await {
                Err(error) if error.refused.is_some() => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from(ErrorKind::ConnectionRefused).into()))
    }
}

/// The error of a request.
#[derive(Debug)]
pub struct HttpError {
    /// The check's reason.
    pub reason: Reason,
    /// `None` if the connection was open: the answer is incomplete or not HTTP. Else true if nothing listens.
    pub(crate) refused: Option<bool>,
}

impl From<HttpError> for Reason {
    fn from(error: HttpError) -> Self {
        error.reason
    }
}

/// The error of a connection that could not be opened.
impl From<io::Error> for HttpError {
    fn from(error: io::Error) -> Self {
        let refused = Some(error.kind() == ErrorKind::ConnectionRefused);
        Self { reason: io_reason(&error), refused }
    }
}

impl From<GetError> for HttpError {
    fn from(error: GetError) -> Self {
        let reason = match error {
            GetError::NotConnected(error) => return error.into(),
            GetError::NotResolved(why) => {
                return Self { reason: Reason::new("NameNotResolved").detail(why), refused: Some(false) };
            }
            GetError::Certificate { kind, detail } => {
                let reason = Reason::new("Certificate").name(kind);
                // Some kinds have no more to say.
                if detail == kind { reason } else { reason.detail(detail) }
            }
            GetError::Tls(error) => Reason::new("TLS").detail(error),
            GetError::Credentials(_) | GetError::NoAuthority => Reason::new("NoCredentials").detail(error),
            GetError::Broken(error) => match find::<hyper::Error>(&*error) {
                Some(http) => broken(http),
                None => Reason::new("ConnectionFailed").detail(error),
            },
        };
        Self { reason, refused: None }
    }
}

/// Returns the reason of an answer that broke off, or that is not HTTP.
fn broken(error: &hyper::Error) -> Reason {
    match find::<io::Error>(error) {
        _ if error.is_parse_too_large() => Reason::new("HeadersTooLarge"),
        _ if error.is_parse() => Reason::new("MalformedResponse"),
        _ if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
            Reason::new("ConnectionClosed")
        }
        // hyper reports a body with malformed chunks like this.
        Some(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => {
            Reason::new("MalformedResponse")
        }
        Some(io) => io_reason(io),
        None => Reason::new("ConnectionFailed").detail(error),
    }
}
