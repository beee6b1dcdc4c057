//! Issues a CA and its serving certificate, for `secret`.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::time::{Duration, SystemTime};

/// The clocks of API servers may be behind by this much.
const BACKDATED: Duration = Duration::from_mins(5);

/// A new CA and its serving certificate, as PEM. The CA's key is gone: renewal makes a new CA.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate of the CA in PEM.
    pub ca: String,
    /// The serving certificate in PEM.
    pub certificate: String,
    /// The key of the serving certificate.
    pub key: String,
}

/// Issues a serving certificate for these names.
pub fn issue(names: &[String], lifetime: Duration, now: SystemTime) -> Result<Issued, rcgen::Error> {
    let (not_before, not_after) = (now - BACKDATED.min(lifetime / 20), now + lifetime);
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // A name of its own for each, so that an API server that trusts two does not mix them up.
    ca.distinguished_name
        .push(DnType::CommonName, format!("nodegate-eviction-gate-ca-{:016x}", fastrand::u64(..)));
    (ca.not_before, ca.not_after) = (not_before.into(), not_after.into());
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);
    let mut leaf = CertificateParams::new(names.to_vec())?;
    let first = names.first().cloned().unwrap_or_default();
    leaf.distinguished_name.push(DnType::CommonName, first.chars().take(64).collect::<String>());
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.use_authority_key_identifier_extension = true;
    (leaf.not_before, leaf.not_after) = (not_before.into(), not_after.into());
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;
    Ok(Issued { ca: ca_certificate.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}
