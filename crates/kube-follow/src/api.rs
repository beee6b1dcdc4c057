//! Single requests to the API server: quorum reads and a few writes.

use crate::client::{ClientError, connect};
use crate::connection::Connection;
use crate::credentials::Credentials;
use crate::observe::{RequestOutcome, WatchObserver};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Request};
use kube::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why a request to the API server failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The answer is an error.
    #[error("{what}: the API server answered {code}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The HTTP status.
        code: u16,
        /// The message of the API server.
        message: String,
    },
    /// There is no answer in time.
    #[error("{0}: no answer from the API server within {ms} ms", ms = .1.as_millis())]
    Late(String, Duration),
    /// There is no answer.
    #[error("{0}: {1}")]
    Failed(String, String),
    /// The answer can't be read.
    #[error("{0}: unreadable answer: {1}")]
    Unreadable(String, String),
}

impl ApiError {
    /// Returns the HTTP status, if there is an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// An observer that records nothing, for clients that watch nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl WatchObserver for NoObserver {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        None
    }
    fn accepted(&self, (): (), _: Connection) {}
    fn heard(&self, (): ()) {}
    fn closed(&self, (): ()) {}
    fn answered(&self, _: &RequestOutcome<()>) {}
}

/// A client that is made again after a failure, with the credentials of that moment.
#[derive(Clone)]
pub struct KubeApi {
    timeout: Duration,
    connect: Arc<dyn Fn() -> BoxFuture<'static, Result<Client, ClientError>> + Send + Sync>,
    client: Arc<Mutex<Option<Client>>>,
}

impl std::fmt::Debug for KubeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeApi").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl KubeApi {
    /// Creates an access with credentials of this kind, which waits for each answer for at most `timeout`.
    /// `observer` observes all requests. Nothing is sent yet.
    pub fn new<C: Credentials + 'static>(timeout: Duration, observer: impl WatchObserver + Sync) -> Self
    where
        ClientError: From<C::Error>,
    {
        let connect = move || -> BoxFuture<'static, Result<Client, ClientError>> {
            Box::pin(connect::<C>(observer.clone()))
        };
        Self { timeout, connect: Arc::new(connect), client: Arc::default() }
    }

    /// Connects unless there is a client, and waits for as long as that takes: a credential plugin may run for
    /// seconds, and no request would leave it the time.
    pub async fn open(&self) -> Result<(), ApiError> {
        let failed = |error: ClientError| ApiError::Failed("connect".to_owned(), error.to_string());
        self.client().await.map(drop).map_err(failed)
    }

    /// Returns an object as JSON, from etcd: no `resourceVersion` is a quorum read. `None` if there is none.
    pub async fn get(&self, path: &str) -> Result<Option<String>, ApiError> {
        match self.send(Method::GET, path, None).await {
            Ok(text) => Ok(Some(text)),
            Err(ApiError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object, or a subresource such as an eviction.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.send(Method::POST, path, Some(("application/json", body))).await
    }

    /// Replaces an object.
    pub async fn put(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.send(Method::PUT, path, Some(("application/json", body))).await
    }

    /// Patches an object, in the way of `kubectl patch`.
    pub async fn patch(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.send(Method::PATCH, path, Some(("application/strategic-merge-patch+json", body))).await
    }

    /// Changes the named fields of an object, as a JSON merge patch. With a `resourceVersion` in it, the answer
    /// is 409 if the object has changed since that version.
    pub async fn merge(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body))).await
    }

    /// Sends a request, and a read once more on a new connection if the old one is broken.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &serde_json::Value)>,
    ) -> Result<String, ApiError> {
        let what = format!("{method} {path}");
        let sent = async {
            let first = self.send_once(&method, path, body, &what).await;
            match first {
                Err(ApiError::Failed(..)) if method == Method::GET => {
                    self.send_once(&method, path, body, &what).await
                }
                other => other,
            }
        };
        let Ok(result) = tokio::time::timeout(self.timeout, sent).await else {
            self.forget();
            return Err(ApiError::Late(what, self.timeout));
        };
        result
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<(&str, &serde_json::Value)>,
        what: &str,
    ) -> Result<String, ApiError> {
        let failed = |error: &dyn std::fmt::Display| ApiError::Failed(what.to_owned(), error.to_string());
        let client = self.client().await.map_err(|error| failed(&error))?;
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Vec::new();
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind);
            bytes = serde_json::to_vec(body).map_err(|error| failed(&error))?;
        }
        let request = request.body(bytes).map_err(|error| failed(&error))?;
        client.request_text(request).await.map_err(|error| match error {
            kube::Error::Api(status) => {
                // Credentials may have been replaced.
                if status.code == 401 {
                    self.forget();
                }
                ApiError::Refused {
                    what: what.to_owned(),
                    code: status.code,
                    message: status.message.clone(),
                }
            }
            error => {
                self.forget();
                failed(&innermost(&error))
            }
        })
    }

    async fn client(&self) -> Result<Client, ClientError> {
        if let Some(client) = self.known() {
            return Ok(client);
        }
        let client = (self.connect)().await?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    fn known(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Returns true if this is the name of an object, which may become part of a path.
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 253 && name.chars().all(allowed) && !name.starts_with('.')
}
