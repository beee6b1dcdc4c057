//! The token of requests, from wherever the user of the kubeconfig has it.

// kube's layer that signs requests is not used: it ends the thread at a token with a line break, refuses a token
// file that ends with one (kubectl trims it), and forgets a good token while its file is empty.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use k8s_openapi::jiff::Timestamp;
use kube::config::AuthInfo;
use nodegate_kubeconfig::{Terminal, run_plugin};
use nodegate_program::os_words;
use secrecy::ExposeSecret;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tower::BoxError;

/// The maximum length of a token, in bytes. A service account's is some 1 KB.
const MAX_TOKEN: u64 = 64 * 1024;

/// The credentials of a user, apart from the client certificate.
pub(crate) struct Credentials {
    /// The source of the `Authorization` header, if the user has a token.
    pub(crate) token: Option<Token>,
    /// The expiry of what a credential plugin gave.
    pub(crate) valid_until: Option<Timestamp>,
}

impl Credentials {
    /// Loads the user's credentials. Afterwards, the user has the certificate that a credential plugin gave, and
    /// no plugin.
    pub(crate) async fn load(user: &mut AuthInfo) -> Result<Self, BoxError> {
        let valid_until = run_plugin(user, Terminal::Absent).await?;
        Ok(Self { token: Token::of(user)?, valid_until })
    }
}

/// The source of the `Authorization` header.
pub(crate) struct Token {
    /// The file of the token, which is rewritten before a service account's token expires.
    file: Option<PathBuf>,
    last: Mutex<HeaderValue>,
}

impl Token {
    fn of(user: &AuthInfo) -> Result<Option<Self>, BoxError> {
        if let (Some(name), Some(password)) = (&user.username, &user.password) {
            let pair = STANDARD.encode(format!("{name}:{}", password.expose_secret()));
            let last = Mutex::new(header(&format!("Basic {pair}"))?);
            return Ok(Some(Self { file: None, last }));
        }
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
    pub(crate) fn header(&self) -> HeaderValue {
        let fresh = self.file.as_deref().and_then(|file| read(file).ok());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fresh) = fresh {
            *last = fresh;
        }
        last.clone()
    }
}

fn read(file: &Path) -> Result<HeaderValue, BoxError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MAX_TOKEN).read_to_string(&mut text));
    // An empty file has just been truncated, to be rewritten.
    let read = if text.trim().is_empty() { read.and(Err(io::ErrorKind::UnexpectedEof.into())) } else { read };
    read.map_err(|error| format!("tokenFile {}: {}", file.display(), os_words(&error)))?;
    bearer(&text)
}

fn bearer(token: &str) -> Result<HeaderValue, BoxError> {
    header(&format!("Bearer {}", token.trim()))
}

fn header(value: &str) -> Result<HeaderValue, BoxError> {
    let mut value = HeaderValue::try_from(value).map_err(|_| "the token is not text of one line")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rotated_token_is_used_at_once_and_a_lost_one_held() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let user = AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() };
        assert!(Token::of(&user).err().unwrap().to_string().starts_with("tokenFile /"));
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

    /// Returns the token of a user of a kubeconfig, or the error.
    async fn load(user: serde_json::Value) -> Result<Option<HeaderValue>, String> {
        let mut user: AuthInfo = serde_json::from_value(user).unwrap();
        let credentials = Credentials::load(&mut user).await.map_err(|error| error.to_string())?;
        Ok(credentials.token.map(|token| token.header()))
    }

    #[tokio::test]
    async fn every_credential_has_its_header() {
        let plugin = json!({"command": "sh", "args": ["-c", r#"echo '{"status":{"token":"run"}}'"#]});
        assert_eq!(load(json!({"exec": plugin})).await.unwrap().unwrap(), "Bearer run");
        assert_eq!(load(json!({"username": "a", "password": "b"})).await.unwrap().unwrap(), "Basic YTpi");
        assert_eq!(load(json!({})).await, Ok(None));
    }

    #[tokio::test]
    async fn what_can_not_be_used_is_named() {
        for (user, said) in [
            (
                json!({"exec": {"command": "/nowhere/aws"}}),
                "credential plugin /nowhere/aws: there is no such program",
            ),
            (json!({"token": "two\nlines"}), "the token is not text of one line"),
        ] {
            let error = load(user).await.unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
