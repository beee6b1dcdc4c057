//! The client's credentials: all kinds that kubectl supports, or all but its plugins.
//!
//! kube can also run a credential plugin and read its output, which requires a `JSONPath` engine and regular
//! expressions. That would be a tenth of the agent, whose image has no program to run. So the agent accepts a
//! token, a token file or a client certificate, like those of service accounts and kubelets, and names all
//! else in its error. nodegate-haproxy runs outside of such an image, and uses kube's implementation. A type
//! parameter chooses, not a setting, so that the linker drops the rest.

use crate::kubeconfig::{self, ReadError};
use crate::observe::BoxedService;
use crate::tls::{self, TlsError};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, Kubeconfig};
use secrecy::ExposeSecret;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt};

/// The maximum length of a token, in bytes. A service account's is some 1 KB.
const MAX_TOKEN: u64 = 64 * 1024;

/// The way in which credentials become part of a connection and of its requests.
pub trait Credentials {
    /// The error of unusable credentials.
    type Error;
    /// Returns the kubeconfig of `KUBECONFIG`, or the default one.
    fn kubeconfig() -> Result<Kubeconfig, ReadError>;
    /// Returns the TLS configuration: the trusted CAs, and the client's certificate if it has one.
    fn tls(config: &Config) -> Result<rustls::ClientConfig, Self::Error>;
    /// Adds the token to every request if there is one.
    fn sign(config: &Config, service: BoxedService) -> Result<BoxedService, Self::Error>;
}

/// A token, a token file or a client certificate.
pub struct StaticCredentials;

/// All credentials that kubectl supports, including plugins.
pub struct KubectlCredentials;

/// The error of credentials that the agent can't use.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The credentials come from a program.
    #[error(
        "its user gets credentials from {0}, which the agent does not run: give it a token, a tokenFile or a client \
         certificate"
    )]
    Plugin(String),
    /// A user name and password, which no API server has accepted since 1.19.
    #[error("its user has a password: give it a token, a tokenFile or a client certificate")]
    Password,
    /// A token file that can't be read.
    #[error("token file {0}: {1}")]
    TokenFile(PathBuf, io::Error),
    /// A token that can't be part of a request.
    #[error("the token is not text of one line")]
    Token,
    /// An error of the certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Credentials for KubectlCredentials {
    type Error = Box<kube::Error>;

    fn kubeconfig() -> Result<Kubeconfig, ReadError> {
        Ok(Kubeconfig::read()?)
    }

    fn tls(config: &Config) -> Result<rustls::ClientConfig, Self::Error> {
        config.rustls_client_config().map_err(Box::new)
    }

    fn sign(config: &Config, service: BoxedService) -> Result<BoxedService, Self::Error> {
        match config.auth_layer().map_err(Box::new)? {
            Some(layer) => Ok(BoxCloneService::new(layer.layer(service))),
            None => Ok(service),
        }
    }
}

impl Credentials for StaticCredentials {
    type Error = CredentialError;

    fn kubeconfig() -> Result<Kubeconfig, ReadError> {
        kubeconfig::read()
    }

    fn tls(config: &Config) -> Result<rustls::ClientConfig, Self::Error> {
        refuse_what_is_not_taken(&config.auth_info)?;
        Ok(tls::client_config(config)?)
    }

    fn sign(config: &Config, service: BoxedService) -> Result<BoxedService, Self::Error> {
        let Some(token) = Token::of(&config.auth_info)? else { return Ok(service) };
        let token = Arc::new(token);
        Ok(BoxCloneService::new(service.map_request(move |mut request: http::Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, token.header());
            request
        })))
    }
}

/// Refuses unsupported credentials. Only a kubeconfig can contain them.
pub(crate) fn refuse_what_is_not_taken(user: &AuthInfo) -> Result<(), CredentialError> {
    if let Some(exec) = &user.exec {
        let command = exec.command.as_deref().unwrap_or("a program without a name");
        return Err(CredentialError::Plugin(format!("a credential plugin (exec: {command})")));
    }
    if let Some(provider) = &user.auth_provider {
        return Err(CredentialError::Plugin(format!("an auth-provider ({})", provider.name)));
    }
    if user.username.is_some() || user.password.is_some() {
        return Err(CredentialError::Password);
    }
    Ok(())
}

/// Returns the `Authorization` header of one request, if the user has a token.
pub(crate) fn authorization(user: &AuthInfo) -> Result<Option<HeaderValue>, CredentialError> {
    Ok(Token::of(user)?.map(|token| token.header()))
}

/// The source of the `Authorization` header.
struct Token {
    /// The file of the token, which is rewritten before a service account's token expires.
    file: Option<PathBuf>,
    last: Mutex<HeaderValue>,
}

impl Token {
    fn of(user: &AuthInfo) -> Result<Option<Self>, CredentialError> {
        if let Some(token) = &user.token {
            let last = Mutex::new(bearer(token.expose_secret())?);
            return Ok(Some(Self { file: None, last }));
        }
        let Some(file) = user.token_file.as_ref().map(PathBuf::from) else { return Ok(None) };
        let last = Mutex::new(read(&file)?);
        Ok(Some(Self { file: Some(file), last }))
    }

    /// Returns the header. The file is read for each request, of which there are some ten an hour. If that
    /// fails, the last token is used, as in client-go.
    fn header(&self) -> HeaderValue {
        let fresh = self.file.as_deref().and_then(|file| read(file).ok());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fresh) = fresh {
            *last = fresh;
        }
        last.clone()
    }
}

fn read(file: &Path) -> Result<HeaderValue, CredentialError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MAX_TOKEN).read_to_string(&mut text));
    read.map_err(|error| CredentialError::TokenFile(file.to_owned(), error))?;
    if text.trim().is_empty() {
        // The file has just been truncated, to be rewritten.
        return Err(CredentialError::TokenFile(file.to_owned(), io::ErrorKind::UnexpectedEof.into()));
    }
    bearer(&text)
}

fn bearer(token: &str) -> Result<HeaderValue, CredentialError> {
    let mut value =
        HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| CredentialError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::{AuthProviderConfig, ExecConfig};

    #[test]
    fn a_rotated_token_is_used_at_once_and_a_lost_one_held() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let user = AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() };
        assert!(matches!(Token::of(&user), Err(CredentialError::TokenFile(..))));
        std::fs::write(&file, "one\n").unwrap();
        let token = Token::of(&user).unwrap().unwrap();
        assert_eq!(token.header(), "Bearer one");
        std::fs::write(&file, "two").unwrap();
        assert_eq!(token.header(), "Bearer two");
        assert!(token.header().is_sensitive());
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(token.header(), "Bearer two");
        std::fs::write(&file, "two\nlines").unwrap();
        assert_eq!(token.header(), "Bearer two");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(token.header(), "Bearer two");
    }

    #[test]
    fn a_token_in_the_kubeconfig_counts_for_more_than_a_file() {
        let user = AuthInfo {
            token: Some("given".to_owned().into()),
            token_file: Some("/nowhere".to_owned()),
            ..AuthInfo::default()
        };
        assert_eq!(Token::of(&user).unwrap().unwrap().header(), "Bearer given");
        assert!(Token::of(&AuthInfo::default()).unwrap().is_none());
    }

    #[test]
    fn what_the_agent_does_not_take_is_said() {
        let refused = |user: AuthInfo| refuse_what_is_not_taken(&user).unwrap_err().to_string();
        let exec = ExecConfig { command: Some("aws".to_owned()), ..serde_json::from_str("{}").unwrap() };
        let text = refused(AuthInfo { exec: Some(exec), ..AuthInfo::default() });
        assert!(text.contains("(exec: aws)") && text.contains("tokenFile"), "{text}");
        let provider: AuthProviderConfig = serde_json::from_str(r#"{"name":"gcp"}"#).unwrap();
        let text = refused(AuthInfo { auth_provider: Some(provider), ..AuthInfo::default() });
        assert!(text.contains("auth-provider (gcp)"), "{text}");
        let password = AuthInfo { username: Some("me".to_owned()), ..AuthInfo::default() };
        assert!(refused(password).contains("password"));
    }
}
