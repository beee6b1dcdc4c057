//! A certificate with its key.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// There is no certificate in the text.
    #[error("no certificate in PEM form")]
    NoCertificate,
    /// There is no key in the text.
    #[error("no private key in PEM form")]
    NoKey,
    /// The certificate can't be read.
    #[error("unreadable certificate: {0}")]
    Unreadable(String),
    /// The CAs of clients can't be used.
    #[error("unusable CAs of clients: {0}")]
    ClientCas(String),
    /// The certificate and the key do not belong together, or are of a kind that is not supported.
    #[error("unusable certificate: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A serving certificate, ready for use.
#[derive(Clone)]
pub struct Pair {
    /// What connections are served with.
    pub config: Arc<ServerConfig>,
    /// When it begins to be valid.
    pub not_before: SystemTime,
    /// The time at which the certificate expires.
    pub not_after: SystemTime,
    /// The CAs that API servers must trust for it, in PEM form.
    pub cas: Vec<String>,
    names: Vec<String>,
    chain: Vec<CertificateDer<'static>>,
}

/// The wish for certificates of clients: their CAs in PEM form. Without it none is asked for.
pub type ClientCas<'a> = Option<&'a [u8]>;

impl Pair {
    /// Parses a certificate chain and a key.
    pub fn parse(certificate: &[u8], key: &[u8], clients: ClientCas<'_>) -> Result<Self, PairError> {
        let chain = all(certificate).ok_or(PairError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PairError::NoKey)?;
        let first = chain.first().ok_or(PairError::NoCertificate)?;
        let (_, parsed) =
            X509Certificate::from_der(first).map_err(|error| PairError::Unreadable(error.to_string()))?;
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let not_before = at(parsed.validity().not_before.timestamp());
        let not_after = at(parsed.validity().not_after.timestamp());
        let names = match parsed.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(dns_name).collect(),
            _ => Vec::new(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(cas) => {
                let unusable = |error: &dyn std::fmt::Display| PairError::ClientCas(error.to_string());
                let mut roots = RootCertStore::empty();
                for ca in all(cas).ok_or_else(|| unusable(&"no certificate in PEM form"))? {
                    roots.add(ca).map_err(|error| unusable(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
            }
        };
        let mut config = config.with_single_cert(chain.clone(), key)?;
        // API servers call webhooks over HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_before, not_after, cas: Vec::new(), names, chain })
    }

    /// Returns true if both have the same certificate.
    pub fn is_same(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    /// Returns true if an API server that has these CAs accepts it now.
    pub fn is_trusted_by(&self, cas: &[String], now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        for ca in cas {
            roots.add_parsable_certificates(CertificateDer::from_pem_slice(ca.as_bytes()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let name = self.names.first().and_then(|name| ServerName::try_from(name.as_str()).ok());
        let (Ok(verifier), Some(name), Some((first, rest))) = (verifier, name, self.chain.split_first())
        else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        verifier.verify_server_cert(first, rest, &name, &[], now).is_ok()
    }

    /// Returns true if it is valid at this time.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Returns true if it has all these names.
    pub fn has_names(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// Returns true if two thirds of its life are over, or if it is not valid yet.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        now < self.not_before || now >= self.not_before + life / 3 * 2
    }

    /// Returns when it expires, in seconds since 1970.
    pub fn expiry(&self) -> i64 {
        let since = self.not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

/// Returns all certificates of a text; `None` without any.
fn all(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// Returns the CAs of a bundle that have not expired, each as it was written; what is no CA is left out.
pub(super) fn cas_of(bundle: &str, now: SystemTime) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).filter_map(|part| Some(&part[part.rfind(BEGIN)?..]));
    let is_valid = |part: &&str| {
        let Ok(der) = CertificateDer::from_pem_slice(part.as_bytes()) else { return false };
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
        let until = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        parsed.is_ca() && now < UNIX_EPOCH + Duration::from_secs(until)
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
    fn what_is_issued_is_read_and_due_after_two_thirds() {
        let now = UNIX_EPOCH + Duration::from_hours(500_000);
        let names = vec!["gate.nodegate.svc".to_owned(), "gate".to_owned()];
        let issued = issue(&names, Duration::from_hours(300), now).unwrap();
        let pair = Pair::parse(issued.certificate.as_bytes(), issued.key.as_bytes(), None).unwrap();
        let at = |hours| now + Duration::from_hours(hours);
        assert!(pair.is_valid(at(0)) && pair.is_valid(at(299)) && !pair.is_valid(at(300)));
        assert!(!pair.is_due(at(0)) && !pair.is_due(at(199)) && pair.is_due(at(201)));
        assert!(pair.has_names(&names) && !pair.has_names(&["other".to_owned()]));
        let other = issue(&names, Duration::from_hours(300), now).unwrap();
        let bundle = format!(
            "{}nonsense{}{}{}{}",
            issued.ca,
            issued.certificate,
            issued.ca,
            &issued.ca[..90],
            other.ca
        );
        let cas = cas_of(&bundle, at(0));
        assert_eq!(cas.len(), 2, "{cas:?}");
        assert_eq!(cas_of(&bundle, at(301)), Vec::<String>::new());
        assert!(pair.is_trusted_by(&cas, at(0)) && pair.is_trusted_by(&cas[..1], at(0)));
        assert!(!pair.is_trusted_by(&cas[1..], at(0)) && !pair.is_trusted_by(&[], at(0)));
        assert!(!pair.is_trusted_by(&cas, at(301)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let now = UNIX_EPOCH + Duration::from_hours(500_000);
        let [one, other] = [0, 1].map(|_| issue(&["a".to_owned()], Duration::from_hours(1), now).unwrap());
        let said = |certificate: &str, key: &str| {
            Pair::parse(certificate.as_bytes(), key.as_bytes(), None).err().unwrap().to_string()
        };
        assert_eq!(said("", &one.key), "no certificate in PEM form");
        assert_eq!(said(&one.certificate, ""), "no private key in PEM form");
        assert!(said(&one.certificate, &other.key).contains("unusable certificate"));
    }
}
