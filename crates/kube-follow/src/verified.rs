//! Opens one TLS connection to an API server of the operator's choice, or to the node's kubelet.

// A client (`crate::Connector`) goes to the server that the credentials name. A check goes to another
// address and needs no more than a connection and a header. Both trust the same CA.

use crate::client::{ClientError, config, connector};
use crate::credentials::Credentials;
use crate::failure_reason::{detail, find};
use crate::tls;
use crate::tls_refusal::mistake;
use http::{HeaderValue, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use kube::config::AuthInfo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use tokio::net::TcpStream;
use tower::Service;

/// The name that every API server's certificate has, whatever its address: pods reach it by this name.
const API_SERVER: &str = "kubernetes.default.svc";

/// The other end of a verified connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer<'a> {
    /// An API server, at any address.
    ApiServer,
    /// A server on this host, at one of the host's own addresses.
    Own {
        /// The address. The connection also comes from it, so that no other machine can answer.
        address: IpAddr,
        /// The name that its certificate must have.
        name: &'a str,
        /// Certificates that are trusted beside the cluster's CA, as PEM.
        trusted: &'a [u8],
    },
}

/// The user that a connection speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No user: neither a token nor a client certificate is shown.
    Anonymous,
    /// The agent's own user.
    Agent,
}

/// A verified connection, for HTTP/1.1.
pub struct Verified {
    /// The stream of bytes.
    pub stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    /// The `Authorization` header of requests, if the caller has a token.
    pub authorization: Option<HeaderValue>,
}

/// The reason why there is no verified connection.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The credentials of this place are of no use.
    #[error(transparent)]
    Credentials(#[from] ClientError),
    /// The credentials name no CA, so no server can be verified.
    #[error("the credentials name no certificate authority")]
    NoAuthority,
    /// The server's certificate is not one for this name and of this CA.
    #[error("{kind}: {detail}")]
    Certificate {
        /// One word for the kind of mistake.
        kind: &'static str,
        /// The sentence of the TLS library.
        detail: String,
    },
    /// The server does not speak TLS as this side does.
    #[error("{0}")]
    Tls(String),
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Io(io::Error),
}

/// Opens a connection to `server`, whose certificate must be of the cluster's CA and for the name of `peer`. An
/// `insecure-skip-tls-verify` of the kubeconfig does not count. The files of the credentials are read again each
/// time. Only the TCP connection has a timeout; dropping the future closes it.
pub async fn open_verified(server: Uri, peer: Peer<'_>, caller: Caller) -> Result<Verified, OpenError> {
    let mut config = config()?;
    config.accept_invalid_certs = false;
    let (mut name, mut tcp) = (API_SERVER, connector());
    if let Peer::Own { address, name: own, trusted } = peer {
        name = own;
        let pem = CertificateDer::pem_slice_iter(trusted).filter_map(Result::ok);
        config.root_cert.get_or_insert_default().extend(pem.map(|certificate| certificate.to_vec()));
        tcp.set_local_address(Some(address));
    }
    // A file without a certificate verifies no server, either.
    if config.root_cert.as_ref().is_none_or(Vec::is_empty) {
        return Err(OpenError::NoAuthority);
    }
    let authorization = match caller {
        Caller::Anonymous => {
            config.auth_info = AuthInfo::default();
            None
        }
        Caller::Agent => {
            let credentials =
                Credentials::load(&mut config.auth_info).await.map_err(ClientError::unusable)?;
            credentials.token.map(|token| token.header())
        }
    };
    let name = DnsName::try_from(name.to_owned()).map_err(|_| ClientError::server_name(name))?;
    let tls = tls::client_config(&config).map_err(ClientError::unusable)?;
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let tls =
        tls.with_server_name_resolver(FixedServerNameResolver::new(ServerName::DnsName(name))).enable_http1();
    // A new connector is always ready.
    let stream = tls.wrap_connector(tcp).call(server).await;
    let stream = stream.map_err(|error| OpenError::of(error.as_ref()))?;
    Ok(Verified { stream, authorization })
}

impl OpenError {
    fn of(error: &(dyn StdError + 'static)) -> Self {
        match find::<rustls::Error>(error) {
            Some(rustls::Error::InvalidCertificate(why)) => {
                Self::Certificate { kind: mistake(why).0, detail: why.to_string() }
            }
            Some(other) => Self::Tls(other.to_string()),
            None => Self::Io(innermost(error).unwrap_or_else(|| io::Error::other(detail(error)))),
        }
    }
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
