//! A serving certificate with its key, parsed and checked. `keeper` and `secret` use it.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

const NO_CERTIFICATE: &str = "no certificate in PEM form";

/// A serving certificate, ready for use.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) config: Arc<ServerConfig>,
    not_before: SystemTime,
    not_after: SystemTime,
    /// The CAs that API servers must trust for it, in PEM form.
    pub(crate) cas: Vec<String>,
    chain: Vec<CertificateDer<'static>>,
}

/// The CAs of clients in PEM form. With `None`, clients need no certificate.
pub(crate) type ClientCas<'a> = Option<&'a [u8]>;

impl Pair {
    pub(crate) fn parse(certificate: &[u8], key: &[u8], clients: ClientCas<'_>) -> Result<Self, String> {
        let clients = clients.map(client_verifier).transpose();
        let clients = clients.map_err(|error| format!("unusable CAs of clients: {error}"))?;
        Self::checked(certificate, key, clients).map_err(|error| format!("unusable certificate: {error}"))
    }

    fn checked(
        certificate: &[u8],
        key: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, Box<dyn Error>> {
        let chain = all_in(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "no private key in PEM form")?;
        let (_, parsed) = X509Certificate::from_der(chain.first().ok_or(NO_CERTIFICATE)?)?;
        let not_before = since_epoch(parsed.validity().not_before.timestamp());
        let not_after = since_epoch(parsed.validity().not_after.timestamp());
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let config =
            config.with_client_cert_verifier(clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth));
        let mut config = config.with_single_cert(chain.clone(), key)?;
        // API servers call webhooks over HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_before, not_after, cas: Vec::new(), chain })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    /// Returns true if an API server that has these CAs accepts it now for each of these names.
    pub(crate) fn is_trusted_by(&self, cas: &[String], names: &[String], now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        for ca in cas {
            roots.add_parsable_certificates(CertificateDer::from_pem_slice(ca.as_bytes()));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let (Ok(verifier), Some((first, rest))) = (verifier, self.chain.split_first()) else { return false };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        names.iter().all(|name| {
            ServerName::try_from(name.as_str())
                .is_ok_and(|name| verifier.verify_server_cert(first, rest, &name, &[], now).is_ok())
        })
    }

    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Returns true if two thirds of its life are over, or if it is not valid yet.
    pub(crate) fn is_due(&self, now: SystemTime) -> bool {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        now < self.not_before || now >= self.not_before + life / 3 * 2
    }

    /// Returns when it expires, in seconds since 1970.
    pub(crate) fn expiry(&self) -> i64 {
        let since = self.not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn since_epoch(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Returns a verifier of clients that must show a certificate of one of these CAs.
fn client_verifier(cas: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    all_in(cas)?.into_iter().try_for_each(|ca| roots.add(ca))?;
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?)
}

/// Returns all certificates of a text, at least one.
fn all_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or(NO_CERTIFICATE)
}

/// Returns the CAs of a bundle that have not expired, each as it was written; what is no CA is left out.
pub(super) fn cas_of(bundle: &str, now: SystemTime) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).filter_map(|part| Some(&part[part.rfind(BEGIN)?..]));
    let is_valid = |part: &&str| {
        let Ok(der) = CertificateDer::from_pem_slice(part.as_bytes()) else { return false };
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
        parsed.is_ca() && now < since_epoch(parsed.validity().not_after.timestamp())
    };
    let mut cas: Vec<String> = Vec::new();
    for part in parts.filter(is_valid).map(|part| format!("{part}\n")) {
        if !cas.contains(&part) {
            cas.push(part);
        }
    }
    cas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::issue;

    #[test]
    fn an_issued_certificate_is_due_after_two_thirds() {
        let now = UNIX_EPOCH + Duration::from_hours(500_000);
        let names = ["gate.nodegate.svc".to_owned(), "gate".to_owned()];
        let [issued, other] = [0, 1].map(|_| issue(&names, Duration::from_hours(300), now).unwrap());
        let parse = |key: &str| Pair::parse(issued.certificate.as_bytes(), key.as_bytes(), None);
        let pair = parse(&issued.key).unwrap();
        assert!(parse(&other.key).err().unwrap().starts_with("unusable certificate: "));
        let at = |hours| now + Duration::from_hours(hours);
        assert!(pair.is_valid(at(0)) && pair.is_valid(at(299)) && !pair.is_valid(at(300)));
        assert!(!pair.is_due(at(0)) && !pair.is_due(at(199)) && pair.is_due(at(201)));
        let bundle = [&issued.ca, "nonsense", &issued.certificate, &issued.ca, &issued.ca[..90], &other.ca];
        let bundle = bundle.concat();
        let cas = cas_of(&bundle, at(0));
        assert_eq!(cas.len(), 2, "{cas:?}");
        assert_eq!(cas_of(&bundle, at(301)), [""; 0]);
        let is_trusted = |cas, at| pair.is_trusted_by(cas, &names, at);
        assert!(is_trusted(&cas, at(0)) && is_trusted(&cas[..1], at(0)));
        assert!(!is_trusted(&cas[1..], at(0)) && !is_trusted(&[], at(0)) && !is_trusted(&cas, at(301)));
        assert!(!pair.is_trusted_by(&cas, &["other".to_owned()], at(0)));
    }
}
