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
    use crate::client::connect_with;
    use crate::failure_reason::FailureReason;
    use crate::{NoObserver, Session};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use k8s_openapi::api::core::v1::Node;
    use kube::config::AuthInfo;
    use kube::runtime::watcher;
    use kube::{Api, Config};
    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyPair, SanType, date_time_ymd,
    };
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    /// A certificate and its key.
    struct Identity {
        params: CertificateParams,
        certificate: Certificate,
        key: KeyPair,
    }

    /// Returns the parameters of a certificate of this name for 127.0.0.1.
    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn authority(name: &str) -> Identity {
        let (mut params, key) = (params(name), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Identity { params, certificate, key }
    }

    fn signed(by: &Identity, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &Issuer::from_params(&by.params, &by.key)).unwrap();
        Identity { params, certificate, key }
    }

    /// Starts an API server with this certificate. It accepts clients of this CA, if it is given one.
    async fn server(identity: &Identity, client_ca: Option<&Identity>) -> String {
        let builder = ServerConfig::builder();
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.certificate.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(identity.key.serialize_pem().as_bytes()).unwrap();
        let config = builder.with_single_cert(vec![identity.certificate.der().clone()], key).unwrap();
        let (acceptor, listener) =
            (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let at = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                match acceptor.accept(socket).into_fallible().await {
                    Ok(mut stream) => {
                        let _ = stream.read(&mut [0; 1024]).await;
                        let _ =
                            stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
                    }
                    // Closed with a request unread, the connection would be reset, and the alert lost.
                    Err((_, mut socket)) => drop(socket.read_to_end(&mut Vec::new()).await),
                }
            }
        });
        at
    }

    /// Returns the configuration of a client with this server and this CA.
    fn config(server: &str, ca: &Identity, client: Option<&Identity>) -> Config {
        let mut config = Config::new(server.parse().unwrap());
        config.root_cert = Some(vec![ca.certificate.der().to_vec()]);
        config.auth_info = client.map_or_else(AuthInfo::default, |client| AuthInfo {
            client_certificate_data: Some(STANDARD.encode(client.certificate.pem())),
            client_key_data: Some(STANDARD.encode(client.key.serialize_pem()).into()),
            ..AuthInfo::default()
        });
        config
    }

    /// Returns the end of a session.
    async fn end(config: Config) -> (FailureReason, String) {
        let client = connect_with(config, Arc::new(NoObserver)).await.unwrap();
        let (api, config) = (Api::<Node>::all(client), watcher::Config::default());
        let ended = Session { api, config, list_within: Duration::from_mins(1) }.run(pending(), |_| {}).await;
        (ended.reason, ended.detail)
    }

    #[tokio::test]
    async fn any_server_is_accepted_if_told_to() {
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        let stranger = signed(&theirs, params("server"));
        let mut insecure = config(&server(&stranger, None).await, &ours, None);
        insecure.accept_invalid_certs = true;
        assert_eq!(end(insecure).await.0, FailureReason::Forbidden);
    }

    #[tokio::test]
    async fn each_refusal_says_what_to_do() {
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        let (mut expired, mut other_name) = (params("expired"), params("other"));
        expired.not_after = date_time_ymd(2020, 1, 1);
        other_name.subject_alt_names = vec![SanType::DnsName("api.example.com".try_into().unwrap())];
        let [good, expired, other_name] =
            [params("good"), expired, other_name].map(|params| signed(&ours, params));
        let stranger = signed(&theirs, params("stranger"));
        // The server, the CA of the credentials, the client's certificate, the CA of clients; what is said, and the
        // remedy.
        for (what, server_is, ca, client, client_ca, said, remedy) in [
            ("wrong CA", &stranger, &ours, None, None, "UnknownIssuer", "give them the CA that signed it"),
            ("expired", &expired, &ours, None, None, "expired", "renew the API server's certificate"),
            (
                "wrong name",
                &other_name,
                &ours,
                None,
                None,
                "not valid for name \"127.0.0.1\"",
                "tls-server-name",
            ),
            ("pinned leaf", &good, &good, None, None, "UnknownIssuer", "does not count as one"),
            ("self-signed", &ours, &ours, None, None, "CaUsedAsEndEntity", "basicConstraints CA:FALSE"),
            ("client refused", &good, &ours, Some(&stranger), Some(&ours), "alert", "--client-ca-file"),
            ("no client certificate", &good, &ours, None, Some(&ours), "alert", "--client-ca-file"),
        ] {
            let at = server(server_is, client_ca).await;
            let (reason, detail) = end(config(&at, ca, client)).await;
            assert_eq!(reason, FailureReason::Tls, "{what}: {detail}");
            assert!(detail.contains(said) && detail.contains(remedy), "{what}: {detail}");
        }
        let at = server(&good, Some(&ours)).await;
        let (reason, detail) = end(config(&at, &ours, Some(&good))).await;
        assert_eq!(reason, FailureReason::Forbidden, "a certificate that both accept: {detail}");
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("https://{}", plain.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut socket, _) = plain.accept().await.unwrap();
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            pending::<()>().await;
        });
        let (reason, detail) = end(config(&at, &ours, None)).await;
        assert!(reason == FailureReason::Tls && detail.contains("does not speak TLS"), "{detail}");
    }
}
