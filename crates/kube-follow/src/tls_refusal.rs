//! Explains errors of TLS to the operator: what one side refused, and what to do about it.

use rustls::{CertificateError, Error};

/// The maximum length of the library's sentence, in characters: it may list all names of a certificate.
const MAX_SENTENCE: usize = 300;

/// Returns the error and what to do about it, on one line.
pub(crate) fn explained(error: &Error) -> String {
    let sentence: String = error.to_string().chars().take(MAX_SENTENCE).collect();
    format!("{sentence}; {}", remedy(error))
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(why) => mistake(why).1,
        Error::AlertReceived(_) => {
            "the API server refuses this client's certificate: renew it, or use one of a CA in the API server's \
             --client-ca-file"
        }
        Error::InvalidMessage(_) => {
            "the server does not speak TLS: check that this is the API server's port, and that the URL should begin with https"
        }
        _ => {
            "the API server and this client have no version or cipher of TLS in common, or something between them \
              changes what they send"
        }
    }
}

/// Returns one word for the mistake in a server's certificate, and what to do about it.
pub(crate) fn mistake(error: &CertificateError) -> (&'static str, &'static str) {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "UnknownIssuer",
            "the API server's certificate is not signed by the CA of the credentials: give them the CA that signed it \
             (certificate-authority); the server's own certificate does not count as one",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("Expired", "renew the API server's certificate; if it is valid, set this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("NotValidYet", "set this machine's clock, or that of the machine that made the certificate")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "NotValidForName",
            "reach the API server by a name or address that its certificate has, or set tls-server-name to one",
        ),
        // The library has no variant for this one.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "Invalid",
            "the API server shows a CA's certificate as its own, such as `openssl req -x509` makes: give \
             it a certificate that a CA signed and that is no CA itself (basicConstraints CA:FALSE), and put that CA into \
             the credentials",
        ),
        _ => (
            "Invalid",
            "give the API server a certificate for server authentication that the CA of the credentials signed",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::client_config;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use kube::Config;
    use kube::config::AuthInfo;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        SanType, date_time_ymd,
    };
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConnection, RootCertStore, ServerConfig, ServerConnection};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;

    /// A certificate and its key.
    type Identity = CertifiedIssuer<'static, KeyPair>;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn authority(name: &str) -> Identity {
        let mut params = params();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Identity::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn signed(by: &Identity, params: CertificateParams) -> Identity {
        Identity::signed_by(params, KeyPair::generate().unwrap(), by).unwrap()
    }

    /// Returns an API server with this certificate. It accepts clients of this CA, if it is given one.
    fn server(identity: &Identity, client_ca: Option<&Identity>) -> impl FnOnce(UnixStream) + Send + 'static {
        let builder = ServerConfig::builder();
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(identity.key().serialize_pem().as_bytes()).unwrap();
        let config = builder.with_single_cert(vec![identity.der().clone()], key).unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        move |mut stream| drop(server.complete_io(&mut stream))
    }

    fn client(ca: &Identity, identity: Option<&Identity>) -> ClientConnection {
        let mut config = Config::new("https://127.0.0.1".parse().unwrap());
        config.root_cert = Some(vec![ca.der().to_vec()]);
        config.auth_info = identity.map_or_else(AuthInfo::default, |identity| AuthInfo {
            client_certificate_data: Some(STANDARD.encode(identity.pem())),
            client_key_data: Some(STANDARD.encode(identity.key().serialize_pem()).into()),
            ..AuthInfo::default()
        });
        let config = Arc::new(client_config(&config).unwrap());
        ClientConnection::new(config, "127.0.0.1".try_into().unwrap()).unwrap()
    }

    /// Connects a client, and returns why one of the two refuses the other.
    fn refused(
        mut client: ClientConnection,
        serve: impl FnOnce(UnixStream) + Send + 'static,
    ) -> Option<Error> {
        let (mut here, there) = UnixStream::pair().unwrap();
        let served = thread::spawn(move || serve(there));
        // A server that refuses the client says so after the handshake.
        let ended = client.complete_io(&mut here).and_then(|_| client.complete_io(&mut here));
        served.join().unwrap();
        Some(*ended.err()?.into_inner()?.downcast().unwrap())
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        let (mut expired, mut other_name) = (params(), params());
        expired.not_after = date_time_ymd(2020, 1, 1);
        other_name.subject_alt_names = vec![SanType::DnsName("api.example.com".try_into().unwrap())];
        let [good, expired, other_name] = [params(), expired, other_name].map(|params| signed(&ours, params));
        let stranger = signed(&theirs, params());
        // The server, the CA of the credentials, the client, the CA of clients; what is said; the remedy.
        for (server_is, ca, client_is, client_ca, said, remedy) in [
            (&stranger, &ours, None, None, "UnknownIssuer", "give them the CA that signed it"),
            (&expired, &ours, None, None, "expired", "renew the API server's certificate"),
            (&other_name, &ours, None, None, "not valid for name \"127.0.0.1\"", "tls-server-name"),
            (&good, &good, None, None, "UnknownIssuer", "does not count as one"),
            (&ours, &ours, None, None, "CaUsedAsEndEntity", "basicConstraints CA:FALSE"),
            (&good, &ours, Some(&stranger), Some(&ours), "alert", "--client-ca-file"),
            (&good, &ours, None, Some(&ours), "alert", "--client-ca-file"),
        ] {
            let error = refused(client(ca, client_is), server(server_is, client_ca)).expect(said);
            let detail = explained(&error);
            assert!(detail.contains(said) && detail.contains(remedy), "{said}: {detail}");
        }
        let accepted = refused(client(&ours, Some(&good)), server(&good, Some(&ours)));
        assert_eq!(accepted, None, "a certificate that both accept");
        let plain = |mut stream: UnixStream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let error = refused(client(&ours, None), plain).unwrap();
        assert!(explained(&error).contains("does not speak TLS"));
    }
}
