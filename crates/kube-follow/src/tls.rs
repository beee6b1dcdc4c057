//! TLS between a program and the API server: the trusted certificates, and the client's own.
//!
//! kube's own function for it can also run credential plugins and read their output, which takes a `JSONPath`
//! engine and regular expressions into each binary: a tenth of the agent, more than its budget of 10 MB allows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The error of certificates that can't be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that can't be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// Data in the kubeconfig that is not base64.
    #[error("{0} is not base64")]
    Base64(&'static str),
    /// A certificate without its key, or a key alone.
    #[error("a client certificate needs its key, and a key its certificate")]
    Half,
    /// A file that is not PEM, or contains something else.
    #[error("{0}: {1}")]
    Pem(&'static str, rustls::pki_types::pem::Error),
    /// Certificate and key that don't match, or an invalid CA.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Returns the client's TLS configuration. It is built for each client, so that rotated files need no
/// watching.
pub(crate) fn client_config(config: &Config) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder();
    let builder = match &config.root_cert {
        _ if config.accept_invalid_certs => {
            let anyone = Anyone(builder.crypto_provider().clone());
            builder.dangerous().with_custom_certificate_verifier(Arc::new(anyone))
        }
        Some(certificates) => {
            let mut roots = RootCertStore::empty();
            for der in certificates {
                roots.add(der.clone().into())?;
            }
            builder.with_root_certificates(roots)
        }
        // The CAs of the machine apply, as in client-go.
        None => builder.with_platform_verifier()?,
    };
    match identity(&config.auth_info)? {
        Some((chain, key)) => Ok(builder.with_client_auth_cert(chain, key)?),
        None => Ok(builder.with_no_client_auth()),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(user: &AuthInfo) -> Result<Option<Identity>, TlsError> {
    const CERTIFICATE: &str = "client-certificate";
    const KEY: &str = "client-key";
    let certificate =
        load(CERTIFICATE, user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = load(KEY, key_data, user.client_key.as_deref())?;
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err(TlsError::Half),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| TlsError::Pem(CERTIFICATE, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| TlsError::Pem(KEY, error))?;
    Ok(Some((chain, key)))
}

/// Loads data or a file of the kubeconfig. Data takes precedence over the file.
fn load(what: &'static str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, TlsError> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data.trim()).map(Some).map_err(|_| TlsError::Base64(what)),
        (None, Some(file)) => {
            std::fs::read(file).map(Some).map_err(|error| TlsError::Read(PathBuf::from(file), error))
        }
        (None, None) => Ok(None),
    }
}

/// Accepts any server that has the key of its certificate: `insecure-skip-tls-verify`.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::AuthInfo;
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use std::fs;

    /// A CA that has signed all certificates.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        der: CertificateDer<'static>,
    }

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), der }
    }

    impl Authority {
        /// Returns a certificate and its key, as PEM.
        fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
        }

        fn config(&self, user: AuthInfo) -> Config {
            let mut config = Config::new("https://api.test:6443".parse().unwrap());
            config.root_cert = Some(vec![self.der.to_vec()]);
            config.auth_info = user;
            config
        }

        /// Runs a handshake with an API server that requires a certificate of this CA; returns the client's
        /// certificates.
        fn greets(&self, client: ClientConfig) -> Result<Vec<CertificateDer<'static>>, rustls::Error> {
            let mut roots = RootCertStore::empty();
            roots.add(self.der.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
            let (certificate, key) = self.sign("api.test", ExtendedKeyUsagePurpose::ServerAuth);
            let chain =
                CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let server = ServerConfig::builder()
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain, key)
                .unwrap();
            let mut server = ServerConnection::new(Arc::new(server)).unwrap();
            let mut client =
                ClientConnection::new(Arc::new(client), ServerName::try_from("api.test").unwrap()).unwrap();
            while client.wants_write() || server.wants_write() {
                let mut bytes = Vec::new();
                client.write_tls(&mut bytes).unwrap();
                server.read_tls(&mut bytes.as_slice()).unwrap();
                server.process_new_packets()?;
                let mut bytes = Vec::new();
                server.write_tls(&mut bytes).unwrap();
                client.read_tls(&mut bytes.as_slice()).unwrap();
                client.process_new_packets()?;
            }
            Ok(server
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .cloned()
                .map(CertificateDer::into_owned)
                .collect())
        }
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_client_certificate_is_shown_from_files_and_from_data() {
        let authority = authority();
        let (certificate, key) = authority.sign("worker-1", ExtendedKeyUsagePurpose::ClientAuth);
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            Some(path.display().to_string())
        };
        let from_files = AuthInfo {
            client_certificate: file("client.crt", &certificate),
            client_key: file("client.key", &key),
            ..AuthInfo::default()
        };
        let from_data = AuthInfo {
            client_certificate_data: Some(STANDARD.encode(&certificate)),
            client_key_data: Some(STANDARD.encode(&key).into()),
            ..AuthInfo::default()
        };
        for user in [from_files, from_data] {
            let client = client_config(&authority.config(user)).unwrap();
            assert_eq!(authority.greets(client).unwrap(), [der(&certificate)]);
        }
        let without_identity = client_config(&authority.config(AuthInfo::default())).unwrap();
        authority.greets(without_identity).unwrap_err();
    }

    #[test]
    fn a_server_of_another_ca_is_not_believed_unless_told_to() {
        let (ours, theirs) = (authority(), authority());
        let (certificate, key) = theirs.sign("worker-1", ExtendedKeyUsagePurpose::ClientAuth);
        let user = AuthInfo {
            client_certificate_data: Some(STANDARD.encode(&certificate)),
            client_key_data: Some(STANDARD.encode(&key).into()),
            ..AuthInfo::default()
        };
        let mut config = ours.config(user);
        theirs.greets(client_config(&config).unwrap()).unwrap_err();
        config.accept_invalid_certs = true;
        theirs.greets(client_config(&config).unwrap()).unwrap();
    }

    #[test]
    fn what_can_not_be_used_is_named() {
        let authority = authority();
        let (certificate, _) = authority.sign("worker-1", ExtendedKeyUsagePurpose::ClientAuth);
        let said = |user| client_config(&authority.config(user)).unwrap_err().to_string();
        let half =
            AuthInfo { client_certificate_data: Some(STANDARD.encode(certificate)), ..AuthInfo::default() };
        assert_eq!(said(half), "a client certificate needs its key, and a key its certificate");
        let garbage = AuthInfo { client_certificate_data: Some("%".to_owned()), ..AuthInfo::default() };
        assert_eq!(said(garbage), "client-certificate is not base64");
        let missing = AuthInfo { client_key: Some("/nowhere/key".to_owned()), ..AuthInfo::default() };
        assert!(said(missing).starts_with("/nowhere/key: "));
    }
}
