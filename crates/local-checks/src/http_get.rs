//! One HTTP GET to an address on this node, for several checks.

use crate::check::KnownNode;
use crate::options::Key;
pub use crate::url::HttpError;
use crate::url::{HttpUrl, connect_to_own, io_reason};
use bytes::Bytes;
use futures::future::{Either, select};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt;
use hyper_util::rt::TokioIo;
use nodegate_kube_follow::{Caller, OpenError, Peer, open_verified};
use nodegate_readiness::Reason;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of status line and headers. Health endpoints send a few hundred bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The maximum length of a body that is read; kube-proxy's is below 1 KiB.
pub const MAX_BODY: usize = 64 * 1024;

const USER_AGENT: &str = concat!("nodegate/", env!("CARGO_PKG_VERSION"));

/// A connection for HTTP. hyper's client is compiled for the boxed one alone.
trait Stream: rt::Read + rt::Write + Send + Unpin {}

impl<S: rt::Read + rt::Write + Send + Unpin> Stream for S {}

/// Requests one URL, over a new connection each time: a kept one would not notice that nothing listens any
/// more. The check's timeout limits it, and dropping a request closes its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    pub(crate) url: HttpUrl,
    pub(crate) header: Option<Header>,
}

/// A request header in an operator's setting: `Host: app.example`. It replaces the usual one of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header(HeaderName, HeaderValue);

/// Returns the reason of an answer with an unexpected status.
pub(crate) fn status_reason(status: StatusCode) -> Reason {
    Reason::new("HTTP").status(status.as_u16())
}

impl HttpGet {
    /// Creates a request without a header of its own.
    pub fn new(url: HttpUrl) -> Self {
        Self { url, header: None }
    }

    /// Requests the status alone. The body is not read, so a slow or endless one does no harm.
    pub async fn status(&self) -> Result<StatusCode, HttpError> {
        self.get(None, 0).await.map(|reply| reply.status())
    }

    /// Requests the status, and at most `body` bytes of the body. An address `own` is never another
    /// machine's.
    pub async fn get(&self, own: Option<IpAddr>, body: usize) -> Result<Response<Bytes>, HttpError> {
        let stream = match own {
            Some(address) => connect_to_own(SocketAddr::new(address, self.url.to.port)).await?,
            None => self.url.to.connect().await?,
        };
        let mut request = get(&self.url.path, &self.url.authority)?;
        if let Some(Header(name, value)) = self.header.clone() {
            request.headers_mut().insert(name, value);
        }
        exchange(Box::new(TokioIo::new(stream)), request, body).await
    }
}

impl Header {
    /// The setting that adds a header to the requests of a check.
    pub(crate) const KEY: Key<Self> = Key {
        name: "header",
        parse: |text| {
            let parse = || {
                let (name, value) = text.split_once(':')?;
                Some(Self(name.trim().parse().ok()?, value.trim().parse().ok()?))
            };
            parse().ok_or("takes a request header like Host: app.example".to_owned())
        },
    };
}

/// The configured URL of a component of this node, or `/healthz` on a port of the first address that accepts.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort(pub(crate) Option<HttpUrl>, pub(crate) u16);

impl LocalPort {
    /// Requests status and body like [`HttpGet::get`]. If no address accepts, the error is that of 127.0.0.1.
    pub(crate) async fn get(&self, node: &KnownNode, body: usize) -> Result<Response<Bytes>, HttpError> {
        if let Some(url) = &self.0 {
            return HttpGet::new(url.clone()).get(None, body).await;
        }
        let mut refused = None;
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        for address in loopback.into_iter().chain(node.internal_ips.iter().copied()) {
            let get = HttpGet::new(HttpUrl::at(SocketAddr::new(address, self.1), "/healthz"));
            match get.get(Some(address), body).await {
                Err(error) if error.refused.is_some() => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from(ErrorKind::ConnectionRefused).into()))
    }
}

/// Returns the request for `path` of the server `authority`.
fn get(path: &PathAndQuery, authority: &str) -> Result<Request<Empty<Bytes>>, HttpError> {
    Request::get(path.as_str())
        .header(header::HOST, authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        // Unreachable: host and path were parsed as such.
        .map_err(|error| HttpError { reason: Reason::new("BadRequest").detail(error), refused: None })
}

/// Sends a request over a connection, and reads at most `body` bytes of the answer's body.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Empty<Bytes>>,
    body: usize,
) -> Result<Response<Bytes>, HttpError> {
    let (mut sender, connection) =
        http1::Builder::new().max_header_size(MAX_HEAD).handshake::<_, Empty<Bytes>>(stream).await?;
    let exchange = async move { read(sender.send_request(request).await?, body).await };
    drive(exchange, connection).await
}

/// Waits for an exchange over a connection, which it drives here and not in a task of its own, so that dropping this
/// future drops it.
pub(crate) async fn drive<T, E: From<C>, C>(
    exchange: impl Future<Output = Result<T, E>>,
    connection: impl Future<Output = Result<(), C>>,
) -> Result<T, E> {
    match select(Box::pin(exchange), Box::pin(connection)).await {
        Either::Left((reply, _)) => reply,
        // The connection's own error says more than the cancelled exchange.
        Either::Right((driven, exchange)) => match (exchange.await, driven) {
            (Err(_), Err(error)) => Err(error.into()),
            (reply, _) => reply,
        },
    }
}

/// Requests a path over a verified TLS connection. `caller` says whose credentials the request shows.
pub(crate) async fn get_verified(
    server: &Uri,
    peer: Peer<'_>,
    caller: Caller,
    path: &PathAndQuery,
    body: usize,
) -> Result<Response<Bytes>, Reason> {
    let verified = open_verified(server.clone(), peer, caller).await.map_err(reason_of)?;
    let mut request = get(path, server.authority().map_or("", Authority::as_str))?;
    if let Some(authorization) = verified.authorization {
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
    }
    Ok(exchange(Box::new(verified.stream), request, body).await?)
}

/// Returns the reason of a connection that the agent could not open, or whose other end it does not trust.
fn reason_of(error: OpenError) -> Reason {
    match error {
        OpenError::Io(error) => io_reason(&error),
        OpenError::Certificate { kind, detail } => {
            let reason = Reason::new("Certificate").name(kind);
            // Some kinds have no more to say.
            if detail == kind { reason } else { reason.detail(detail) }
        }
        OpenError::Tls(error) => Reason::new("TLS").detail(error),
        OpenError::Credentials(_) | OpenError::NoAuthority => Reason::new("NoCredentials").detail(error),
    }
}

async fn read(response: Response<Incoming>, limit: usize) -> Result<Response<Bytes>, HttpError> {
    let (head, mut body) = response.into_parts();
    let mut read = Vec::new();
    while read.len() < limit {
        let Some(frame) = body.frame().await else { break };
        if let Some(data) = frame?.data_ref() {
            read.extend(data.iter().take(limit - read.len()));
        }
    }
    Ok(Response::from_parts(head, read.into()))
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        let of_kernel = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let reason = match of_kernel {
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
        };
        Self { reason, refused: None }
    }
}
