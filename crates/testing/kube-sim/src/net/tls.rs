//! The simulator's own CA, and certificates that can be replaced while clients are connected.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// An error that keeps the simulator from starting, or from making a certificate.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The port could not be bound.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
    /// An error of a key or certificate.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// An error of the TLS configuration, or of the CA for client certificates.
    #[error("cannot configure TLS: {0}")]
    Config(#[from] rustls::Error),
}

struct State {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
    ca: CertificateDer<'static>,
    config: Arc<ServerConfig>,
}

pub(crate) struct Tls {
    state: RwLock<State>,
    address: IpAddr,
}

impl Tls {
    /// Returns an identity with a CA and a certificate for loopback, the usual service names and `address`.
    pub(crate) fn new(address: IpAddr) -> Result<Self, SetupError> {
        Ok(Tls { state: RwLock::new(fresh(address)?), address })
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.state.read().unwrap_or_else(PoisonError::into_inner).ca_pem.clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    pub(crate) fn administrator(&self) -> Result<(String, String), SetupError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Ok((params.signed_by(&key, &state.issuer)?.pem(), key.serialize_pem()))
    }

    /// Makes a new server certificate. With `ca`, a new CA signs it, which clients do not trust until they
    /// reread it.
    pub(crate) fn rotate(&self, ca: bool) -> Result<(), SetupError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if ca {
            *state = fresh(self.address)?;
        } else {
            state.config = leaf(&state.issuer, &state.ca, names(self.address))?;
        }
        Ok(())
    }

    /// Makes a new server certificate that is valid for these names only.
    pub(crate) fn rename(&self, names: &[&str]) -> Result<(), SetupError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        state.config = leaf(&state.issuer, &state.ca, names)?;
        Ok(())
    }
}

fn fresh(address: IpAddr) -> Result<State, SetupError> {
    // Each CA has a name of its own, so that clients do not confuse it with an earlier one.
    let name = format!("kube-sim-ca-{:08x}", fastrand::u32(..));
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let ca = params.self_signed(&key)?;
    let (ca_pem, ca) = (ca.pem(), ca.der().clone());
    let issuer = Issuer::new(params, key);
    let config = leaf(&issuer, &ca, names(address))?;
    Ok(State { issuer, ca_pem, ca, config })
}

/// Returns the names of a server's certificate: loopback, the usual service names and its address.
fn names(address: IpAddr) -> Vec<String> {
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(str::to_owned)
            .to_vec();
    let address = (!address.is_unspecified()).then(|| address.to_string());
    names.extend(address.filter(|address| !names.contains(address)));
    names
}

/// Returns the server's TLS configuration with a certificate of this issuer. It requests a client certificate
/// of the same issuer, which clients need not have.
fn leaf(
    issuer: &Issuer<'static, KeyPair>,
    ca: &CertificateDer<'static>,
    names: Vec<String>,
) -> Result<Arc<ServerConfig>, SetupError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut clients = RootCertStore::empty();
    clients.add(ca.clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider.clone());
    let clients = clients.allow_unauthenticated().build();
    let clients = clients.map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
