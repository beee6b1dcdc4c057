//! A serving certificate with its key, parsed and checked. `keeper` and `secret` use it.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const NO_CERTIFICATE: &str = "no certificate in PEM form";

/// A serving certificate, ready for use.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// The CAs that API servers must trust for it, in PEM form.
    pub(crate) cas: Vec<String>,
    names: Vec<String>,
    chain: Vec<CertificateDer<'static>>,
}

/// The CAs of clients in PEM form. With `None`, clients need no certificate.
pub(crate) type ClientCas<'a> = Option<&'a [u8]>;

impl Pair {
    pub(crate) fn parse(certificate: &[u8], key: &[u8], clients: ClientCas<'_>) -> Result<Self, String> {
        let bad_certificate = |error: &dyn Display| format!("unusable certificate: {error}");
        let chain = all(certificate).ok_or_else(|| bad_certificate(&NO_CERTIFICATE))?;
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|_| bad_certificate(&"no private key in PEM form"))?;
        let first = chain.first().ok_or_else(|| bad_certificate(&NO_CERTIFICATE))?;
        let (_, parsed) = X509Certificate::from_der(first).map_err(|error| bad_certificate(&error))?;
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let not_before = at(parsed.validity().not_before.timestamp());
        let not_after = at(parsed.validity().not_after.timestamp());
        let names = match parsed.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(dns_name).collect(),
            _ => Vec::new(),
        };
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| bad_certificate(&error))?;
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(cas) => {
                let bad_cas = |error: &dyn Display| format!("unusable CAs of clients: {error}");
                let mut roots = RootCertStore::empty();
                for ca in all(cas).ok_or_else(|| bad_cas(&NO_CERTIFICATE))? {
                    roots.add(ca).map_err(|error| bad_cas(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                config.with_client_cert_verifier(verifier.build().map_err(|error| bad_cas(&error))?)
            }
        };
        let config = config.with_single_cert(chain.clone(), key);
        let mut config = config.map_err(|error| bad_certificate(&error))?;
        // API servers call webhooks over HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_before, not_after, cas: Vec::new(), names, chain })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    /// Returns true if an API server that has these CAs accepts it now.
    pub(crate) fn is_trusted_by(&self, cas: &[String], now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        for ca in cas {
            roots.add_parsable_certificates(CertificateDer::from_pem_slice(ca.as_bytes()));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let name = self.names.first().and_then(|name| ServerName::try_from(name.as_str()).ok());
        let (Ok(verifier), Some(name), Some((first, rest))) = (verifier, name, self.chain.split_first())
        else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        verifier.verify_server_cert(first, rest, &name, &[], now).is_ok()
    }

    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    pub(crate) fn has_names(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
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
    fn an_issued_certificate_is_due_after_two_thirds() {
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
            Pair::parse(certificate.as_bytes(), key.as_bytes(), None).err().unwrap()
        };
        assert_eq!(said("", &one.key), "unusable certificate: no certificate in PEM form");
        assert_eq!(said(&one.certificate, ""), "unusable certificate: no private key in PEM form");
        assert!(said(&one.certificate, &other.key).contains("unusable certificate"));
    }
}
