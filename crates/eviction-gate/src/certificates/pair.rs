//! A certificate with its key.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
    /// When it expires.
    pub not_after: SystemTime,
    names: Vec<String>,
}

impl Pair {
    /// Parses a certificate chain and a key.
    pub fn parse(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|_| PairError::NoCertificate)?;
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
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // API servers call webhooks over HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_before, not_after, names })
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

/// Returns the certificates of a bundle that are still valid, each as it was written.
pub(super) fn valid_parts(bundle: &str, now: SystemTime) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).filter(|part| part.contains(END)).map(str::trim);
    let is_valid = |part: &&str| {
        let Ok(der) = CertificateDer::from_pem_slice(part.as_bytes()) else { return false };
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
        let until = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        now < UNIX_EPOCH + Duration::from_secs(until)
    };
    parts.filter(is_valid).map(|part| format!("{part}\n")).collect()
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
        let pair = Pair::parse(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
        let at = |hours| now + Duration::from_hours(hours);
        assert!(pair.is_valid(at(0)) && pair.is_valid(at(299)) && !pair.is_valid(at(300)));
        assert!(!pair.is_due(at(0)) && !pair.is_due(at(199)) && pair.is_due(at(201)));
        assert!(pair.has_names(&names) && !pair.has_names(&["other".to_owned()]));
        let bundle = format!("{}{}", issued.ca, issued.ca);
        assert_eq!(valid_parts(&bundle, at(0)).len(), 2);
        assert_eq!(valid_parts(&bundle, at(301)), Vec::<String>::new());
        assert_eq!(valid_parts("nonsense", at(0)), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let now = UNIX_EPOCH + Duration::from_hours(500_000);
        let [one, other] = [0, 1].map(|_| issue(&["a".to_owned()], Duration::from_hours(1), now).unwrap());
        let said = |certificate: &str, key: &str| {
            Pair::parse(certificate.as_bytes(), key.as_bytes()).err().unwrap().to_string()
        };
        assert_eq!(said("", &one.key), "no certificate in PEM form");
        assert_eq!(said(&one.certificate, ""), "no private key in PEM form");
        assert!(said(&one.certificate, &other.key).contains("unusable certificate"));
    }
}
