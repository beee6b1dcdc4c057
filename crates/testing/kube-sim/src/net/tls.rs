//! The simulator's own CA, and certificates that can be replaced while clients are connected.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

/// An error that keeps the simulator from starting, or from making a certificate.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// An error of the TLS configuration, or of the CA for client certificates.
    #[error("cannot configure TLS: {0}")]
    Config(#[from] rustls::Error),
}

type Ca = CertifiedIssuer<'static, KeyPair>;

struct State {
    ca: Ca,
    config: Arc<ServerConfig>,
}

pub(crate) struct Tls {
    state: RwLock<State>,
    address: String,
}

/// The names of a server's certificate beside its address: loopback, and the usual service names.
const NAMES: [&str; 6] =
    ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

impl Tls {
    /// Returns an identity with a CA and a certificate for this address.
    pub(crate) fn new(address: String) -> Result<Self, SetupError> {
        Ok(Tls { state: RwLock::new(fresh(&address)?), address })
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.state.read().unwrap_or_else(PoisonError::into_inner).ca.pem()
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
        Ok((params.signed_by(&key, &state.ca)?.pem(), key.serialize_pem()))
    }

    /// Makes a new server certificate, with `ca` by a new CA, which clients must read first.
    pub(crate) fn rotate(&self, ca: bool) -> Result<(), SetupError> {
        if !ca {
            return self.rename(&[&NAMES[..], &[self.address.as_str()]].concat());
        }
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = fresh(&self.address)?;
        Ok(())
    }

    /// Makes a new server certificate that is valid for these names only.
    pub(crate) fn rename(&self, names: &[&str]) -> Result<(), SetupError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.config = leaf(&state.ca, names)?;
        Ok(())
    }
}

fn fresh(address: &str) -> Result<State, SetupError> {
    // Each CA has a name of its own, so that clients do not confuse it with an earlier one.
    let name = format!("kube-sim-ca-{:08x}", fastrand::u32(..));
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, name);
    let ca = Ca::self_signed(params, KeyPair::generate()?)?;
    let config = leaf(&ca, &[&NAMES[..], &[address]].concat())?;
    Ok(State { ca, config })
}

/// Returns the server's TLS configuration, which asks for a client certificate and requires none.
fn leaf(ca: &Ca, names: &[&str]) -> Result<Arc<ServerConfig>, SetupError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut clients = RootCertStore::empty();
    clients.add(ca.der().clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider.clone());
    let clients = clients.allow_unauthenticated().build();
    let clients = clients.map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], key.into())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
