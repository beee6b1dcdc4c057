//! The token of requests, from wherever the user of the kubeconfig has it.

// kube's layer that signs requests is not used: it ends the thread at a token with a line break, refuses a token
// file that ends with one (kubectl trims it), and forgets a good token while its file is empty.

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

/// The source of the `Authorization` header.
pub(crate) struct Token {
    /// The file of the token, which is rewritten before a service account's token expires.
    file: Option<PathBuf>,
    last: Mutex<HeaderValue>,
}

/// Returns the user's token, if there is one, and the expiry of what a credential plugin gave. Afterwards, the user has
/// the certificate of the plugin, and no plugin.
pub(crate) async fn load(user: &mut AuthInfo) -> Result<(Option<Token>, Option<Timestamp>), BoxError> {
    let valid_until = run_plugin(user, Terminal::Absent).await?;
    let file = user.token_file.as_ref().map(PathBuf::from);
    let last = match (&user.token, &file) {
        (Some(token), _) => bearer(token.expose_secret())?,
        (None, Some(file)) => read(file)?,
        (None, None) => return Ok((None, valid_until)),
    };
    Ok((Some(Token { file, last: Mutex::new(last) }), valid_until))
}

impl Token {
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
    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|_| "the token is not text of one line")?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_rotated_token_is_used_at_once_and_a_lost_one_held() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let mut user = AuthInfo { token_file: Some(file.display().to_string()), ..AuthInfo::default() };
        assert!(load(&mut user).await.err().unwrap().to_string().starts_with("tokenFile /"));
        std::fs::write(&file, "one\n").unwrap();
        let token = load(&mut user).await.unwrap().0.unwrap();
        assert_eq!(token.header(), "Bearer one");
        std::fs::write(&file, "two").unwrap();
        assert_eq!(token.header(), "Bearer two");
        assert!(token.header().is_sensitive());
        for useless in ["\n", "two\nlines"] {
            std::fs::write(&file, useless).unwrap();
            assert_eq!(token.header(), "Bearer two");
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(token.header(), "Bearer two");
    }

    #[tokio::test]
    async fn a_plugins_token_is_used_and_one_of_two_lines_refused() {
        let of = async |user| {
            let (token, _) = load(&mut serde_json::from_value(user).unwrap()).await?;
            Ok::<_, BoxError>(token.map(|token| token.header()))
        };
        let plugin = json!({"command": "sh", "args": ["-c", r#"echo '{"status":{"token":"run"}}'"#]});
        assert_eq!(of(json!({"exec": plugin})).await.unwrap().unwrap(), "Bearer run");
        assert_eq!(of(json!({})).await.unwrap(), None);
        let error = of(json!({"token": "two\nlines"})).await.unwrap_err();
        assert_eq!(error.to_string(), "the token is not text of one line");
    }
}
