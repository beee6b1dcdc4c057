//! A serving certificate with its key: issued, parsed and checked. `keeper` renews it, and `webhook` serves with it.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The clocks of API servers may be behind by this much.
const BACKDATED: Duration = Duration::from_mins(5);
const NO_CERTIFICATE: &str = "no certificate in PEM form";

/// A self-signed certificate, as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate, which is also the only one that API servers must trust for it.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Issues a certificate for this name. It signs nothing but itself, so an API server that trusts it trusts nothing else.
pub fn issue(name: &str, lifetime: Duration, now: SystemTime) -> Result<Issued, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "nodegate-eviction-gate");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    (params.not_before, params.not_after) = ((now - BACKDATED).into(), (now + lifetime).into());
    let key = KeyPair::generate()?;
    Ok(Issued { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A serving certificate, ready for use.
pub(crate) struct Certificate {
    pub(crate) config: Arc<ServerConfig>,
    /// The certificate and its chain in PEM form.
    pub(crate) pem: String,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Certificate {
    pub(crate) fn parse(pem: &str, key: &str, clients: Arc<dyn ClientCertVerifier>) -> Result<Self, String> {
        let parse = || -> Result<Self, Box<dyn Error>> {
            let chain = all_in(pem)?;
            let key =
                PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "no private key in PEM form")?;
            let (not_before, not_after) = validity(chain.first().ok_or(NO_CERTIFICATE)?)?;
            let config =
                ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
            let mut config = config.with_client_cert_verifier(clients).with_single_cert(chain, key)?;
            // API servers call webhooks over HTTP/1.1.
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Self { config: Arc::new(config), pem: pem.to_owned(), not_before, not_after })
        };
        parse().map_err(|error| format!("unusable certificate: {error}"))
    }

    /// Returns true if it is for this name.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        let (Ok(chain), Ok(name)) = (all_in(&self.pem), ServerName::try_from(name)) else { return false };
        let first = chain.first().and_then(|first| ParsedCertificate::try_from(first).ok());
        first.is_some_and(|first| verify_server_name(&first, &name).is_ok())
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

/// Returns a verifier of clients that must show a certificate of one of these CAs, in PEM form.
pub(crate) fn client_verifier(cas: &str) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let verifier = || -> Result<Arc<dyn ClientCertVerifier>, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        all_in(cas)?.into_iter().try_for_each(|ca| roots.add(ca))?;
        Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?)
    };
    verifier().map_err(|error| format!("unusable CAs of clients: {error}"))
}

/// Returns all certificates of a text, at least one.
fn all_in(pem: &str) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or(NO_CERTIFICATE)
}

/// Returns the first and the last instant of a certificate.
fn validity(der: &[u8]) -> Result<(SystemTime, SystemTime), Box<dyn Error>> {
    let (_, parsed) = X509Certificate::from_der(der)?;
    let since_epoch = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let validity = parsed.validity();
    Ok((since_epoch(validity.not_before.timestamp()), since_epoch(validity.not_after.timestamp())))
}

/// Returns the certificates of a bundle that have not expired, each once, as it was written.
pub(crate) fn valid_in(bundle: &str, now: SystemTime) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut all: Vec<String> = Vec::new();
    for part in bundle.split_inclusive(END) {
        let pem = format!("{}\n", &part[part.rfind(BEGIN).unwrap_or(part.len())..]);
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
        let is_valid = der.and_then(|der| validity(&der).ok()).is_some_and(|(_, not_after)| now < not_after);
        if is_valid && !all.contains(&pem) {
            all.push(pem);
        }
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::UnixTime;

    /// Returns true if an API server that trusts the certificates of this bundle accepts it now for this name.
    pub(crate) fn is_trusted(pem: &str, bundle: &str, name: &str, now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(all_in(bundle).unwrap_or_default());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let (Ok(verifier), Ok(chain), Ok(name)) = (verifier, all_in(pem), ServerName::try_from(name)) else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        chain
            .split_first()
            .is_some_and(|(first, rest)| verifier.verify_server_cert(first, rest, &name, &[], now).is_ok())
    }

    #[test]
    fn an_issued_certificate_is_due_after_two_thirds() {
        let (now, name) = (UNIX_EPOCH + Duration::from_hours(500_000), "gate.nodegate.svc");
        let [issued, other] = [0, 1].map(|_| issue(name, Duration::from_hours(300), now).unwrap());
        let parse =
            |key: &str| Certificate::parse(&issued.certificate, key, WebPkiClientVerifier::no_client_auth());
        let pair = parse(&issued.key).unwrap();
        assert!(parse(&other.key).err().unwrap().starts_with("unusable certificate: "));
        let at = |hours| now + Duration::from_hours(hours);
        assert!(pair.is_valid(at(0)) && pair.is_valid(at(299)) && !pair.is_valid(at(300)));
        assert!(!pair.is_due(at(0)) && !pair.is_due(at(199)) && pair.is_due(at(201)));
        let [own, cut, other] = [&*issued.certificate, &issued.certificate[..90], &*other.certificate];
        let bundle = [own, "nonsense", own, cut, other].concat();
        let valid = valid_in(&bundle, at(0));
        assert_eq!((valid.len(), valid_in(&bundle, at(301)).len()), (2, 0));
        assert!(pair.is_for(name) && !pair.is_for("other"));
        let is_trusted = |bundle: &str, at| is_trusted(&pair.pem, bundle, name, at);
        let valid = valid.concat();
        assert!(is_trusted(&valid, at(0)) && is_trusted(own, at(0)) && !is_trusted(&valid, at(301)));
        assert!(!is_trusted(other, at(0)) && !is_trusted("", at(0)));
    }
}
