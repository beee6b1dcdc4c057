//! One HTTP GET to an address on this node, and the reasons why there is no answer, for several checks.

use crate::check::KnownNode;
use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use nodegate_kube_follow::{GetError, Peer, find, get};
use nodegate_readiness::Reason;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of a body that is read; kube-proxy's is below 1 KiB.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// Returns the reason of an answer with an unexpected status.
pub(crate) fn status_reason(status: StatusCode) -> Reason {
    Reason::new("HTTP").status(status.as_u16())
}

/// The configured URL of a component of this node, or `/healthz` on a port of the first address that accepts.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort(pub(crate) Option<Uri>, pub(crate) u16);

impl LocalPort {
    /// Requests status and body, of which it reads at most `most` bytes. If no address accepts, the error is that of
    /// 127.0.0.1.
    pub(crate) async fn get(&self, node: &KnownNode, most: usize) -> Result<Response<Bytes>, GetError> {
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
                Err(error @ GetError::NotConnected(_)) => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(refused.unwrap_or_else(|| GetError::NotConnected(ErrorKind::ConnectionRefused.into())))
    }
}

/// Returns the reason of a request without an answer.
pub(crate) fn get_reason(error: GetError) -> Reason {
    match error {
        GetError::NotConnected(error) => io_reason(&error),
        GetError::NotResolved(why) => Reason::new("NameNotResolved").detail(why),
        GetError::Unusable(reason) => reason,
        GetError::Broken(error) => match find::<hyper::Error>(&*error) {
            Some(http) => broken(http),
            None => Reason::new("ConnectionFailed").detail(error),
        },
    }
}

/// Returns the reason of an answer that broke off, or that is not HTTP.
fn broken(error: &hyper::Error) -> Reason {
    match find::<io::Error>(error) {
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

/// Returns the reason of the kernel's error on a connection, without its address or path.
pub(crate) fn io_reason(error: &io::Error) -> Reason {
    match error.kind() {
        ErrorKind::PermissionDenied => Reason::new("PermissionDenied"),
        // The queue of a Unix socket is full, because its listener hangs and accepts no connections.
        ErrorKind::WouldBlock => Reason::new("NotAccepting"),
        ErrorKind::ConnectionRefused => Reason::new("ConnectionRefused"),
        ErrorKind::ConnectionReset => Reason::new("ConnectionReset"),
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Reason::new("ConnectionClosed"),
        _ => Reason::new("ConnectionFailed").detail(error),
    }
}
