//! TLS between a program and the API server: the trusted certificates, and the client's own.

// kube's own function for it can also run credential plugins and read their output, which takes a `JSONPath`
// engine and regular expressions into each binary: a tenth of the agent, more than its budget of 10 MB allows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::AuthInfo;
use rustls::CertificateError::Other;
use rustls::InconsistentKeys::Unknown;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use std::sync::Arc;
use tower::BoxError;

/// Returns the client's TLS configuration. It is built for each client, so that rotated files need no
/// watching.
pub(crate) fn client_config(config: &Config) -> Result<ClientConfig, BoxError> {
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
    let Some((chain, key)) = identity(&config.auth_info)? else { return Ok(builder.with_no_client_auth()) };
    let key = builder.crypto_provider().key_provider.load_private_key(key)?;
    let identity = CertifiedKey::new(chain, key);
    match identity.keys_match() {
        // rustls can't read a certificate of version 1, as `openssl x509 -req` makes them. The API server can.
        Ok(()) | Err(Error::InvalidCertificate(Other(_)) | Error::InconsistentKeys(Unknown)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity))))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the client's certificates and their key, which the kubeconfig or its credential plugin has given as data.
fn identity(user: &AuthInfo) -> Result<Option<Identity>, BoxError> {
    let (Some(certificate), Some(key)) = (&user.client_certificate_data, &user.client_key_data) else {
        return Ok(None);
    };
    let (certificate, key) = (STANDARD.decode(certificate)?, STANDARD.decode(key.expose_secret())?);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| format!("client-certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("client-key: {error}"))?;
    Ok(Some((chain, key)))
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
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of version 1, and its key.
    const VERSION_1: &str = include_str!("version_1.pem");

    #[test]
    fn a_certificate_of_version_1_is_sent_and_one_of_another_key_is_not() {
        let ours = STANDARD.encode(VERSION_1);
        let other = STANDARD.encode(rcgen::KeyPair::generate().unwrap().serialize_pem());
        let mut config = Config::new("https://api.test:6443".parse().unwrap());
        config.root_cert = Some(Vec::new());
        let of = |certificate: &str, key: &str| AuthInfo {
            client_certificate_data: Some(certificate.to_owned()),
            client_key_data: Some(key.to_owned().into()),
            ..AuthInfo::default()
        };
        config.auth_info = of(&ours, &ours);
        assert!(client_config(&config).unwrap().client_auth_cert_resolver.has_certs());
        let signed = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
        config.auth_info = of(&STANDARD.encode(signed), &other);
        assert!(client_config(&config).is_err());
    }
}
