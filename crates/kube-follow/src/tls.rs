//! TLS between a program and the API server: the trusted certificates, and the client's own.

// kube's own function for it can also run credential plugins and read their output, which takes a `JSONPath`
// engine and regular expressions into each binary: a tenth of the agent, more than its budget of 10 MB allows.

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
    match identity(&config.auth_info)? {
        Some((chain, key)) => Ok(builder.with_client_auth_cert(chain, key)?),
        None => Ok(builder.with_no_client_auth()),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(user: &AuthInfo) -> Result<Option<Identity>, BoxError> {
    const CERTIFICATE: &str = "client-certificate";
    const KEY: &str = "client-key";
    let certificate =
        load(CERTIFICATE, user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = load(KEY, key_data, user.client_key.as_deref())?;
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err("a client certificate needs its key, and a key its certificate".into()),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| format!("{CERTIFICATE}: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("{KEY}: {error}"))?;
    Ok(Some((chain, key)))
}

/// Loads data or a file of the kubeconfig. Data takes precedence over the file.
fn load(what: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => {
            STANDARD.decode(data.trim()).map(Some).map_err(|_| format!("{what} is not base64"))
        }
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|error| format!("{file}: {error}")),
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

    #[test]
    fn what_can_not_be_used_is_named() {
        let said = |user| {
            let mut config = Config::new("https://api.test:6443".parse().unwrap());
            (config.root_cert, config.auth_info) = (Some(Vec::new()), user);
            client_config(&config).unwrap_err().to_string()
        };
        let data =
            |text: &str| AuthInfo { client_certificate_data: Some(text.to_owned()), ..AuthInfo::default() };
        assert_eq!(said(data("")), "a client certificate needs its key, and a key its certificate");
        assert_eq!(said(data("%")), "client-certificate is not base64");
        let missing = AuthInfo { client_key: Some("/nowhere/key".to_owned()), ..AuthInfo::default() };
        assert!(said(missing).starts_with("/nowhere/key: "));
    }
}
