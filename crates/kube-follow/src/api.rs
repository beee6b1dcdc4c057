//! Single requests to the API server: quorum reads and a few writes.

use crate::client::{ClientError, Connector, expires_in};
use crate::connection::{Connection, retry_after};
use crate::failure_reason::{detail, refusal};
use crate::foreign_answer::bounded;
use crate::observe::WatchObserver;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The longest answer. etcd's own limit is 1.5 MiB for an object.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The most attempts of a read. A replacement that was under way at the first failure may have the same credentials.
const ATTEMPTS: u32 = 3;

/// Why a request to the API server failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The answer is an error.
    #[error("{what}: {message}")]
    Refused {
        /// The request, as its verb and path.
        what: String,
        /// The HTTP status of the answer.
        code: u16,
        /// The code with the message of the API server.
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

type Opening = Shared<BoxFuture<'static, Result<(), Arc<str>>>>;

/// A client that is replaced after a failure, with the credentials of that moment.
///
/// One replacement at a time opens a connection, and takes over when the API server has answered on it. Until then
/// all other requests stay with the client that they have.
#[derive(Clone)]
pub struct KubeApi {
    timeout: Duration,
    connect: Arc<dyn Fn() -> BoxFuture<'static, Result<Client, ClientError>> + Send + Sync>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The number of clients that were built before this one.
    number: u64,
    client: Option<Client>,
    opening: Option<Opening>,
}

/// An object of the API server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The body of the answer.
    pub text: String,
    /// The API server's own time of the answer, in whole seconds.
    pub date: Option<SystemTime>,
}

impl KubeApi {
    /// Creates an access that waits for each answer for at most `timeout`. `observer` observes all requests.
    /// Nothing is sent yet.
    pub fn new(timeout: Duration, observer: Arc<dyn WatchObserver>) -> Self {
        Self::over(Connector::Network, timeout, observer)
    }

    /// Creates the same access with this source of clients.
    pub fn over(connector: Connector, timeout: Duration, observer: Arc<dyn WatchObserver>) -> Self {
        let connect = move || -> BoxFuture<'static, Result<Client, ClientError>> {
            let (connector, observer) = (connector.clone(), observer.clone());
            Box::pin(async move { connector.connect(observer).await })
        };
        Self { timeout, connect: Arc::new(connect), state: Arc::default() }
    }

    /// Connects unless there is a client, and waits for as long as that takes: a credential plugin may run for
    /// seconds, and no request would leave it the time.
    pub async fn open(&self) -> Result<(), ApiError> {
        let failed = |error: String| ApiError::Failed("connect".to_owned(), error);
        self.client().await.map(drop).map_err(failed)
    }

    /// Returns an object as JSON, from etcd: no `resourceVersion` is a quorum read. `None` if there is none.
    pub async fn get(&self, path: &str) -> Result<Option<String>, ApiError> {
        Ok(self.get_dated(path).await?.map(|answer| answer.text))
    }

    /// Returns the same with the time of the answer.
    pub async fn get_dated(&self, path: &str) -> Result<Option<Answer>, ApiError> {
        match self.send(Method::GET, path, None).await {
            Ok(answer) => Ok(Some(answer)),
            Err(ApiError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object, or a subresource such as an eviction.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.write(Method::POST, path, "application/json", body).await
    }

    /// Replaces the object at a path by another one.
    pub async fn put(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.write(Method::PUT, path, "application/json", body).await
    }

    /// Patches an object, in the way of `kubectl patch`. With a `resourceVersion` in it, the answer is 409 if the
    /// object has changed since that version.
    pub async fn patch(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.write(Method::PATCH, path, "application/strategic-merge-patch+json", body).await
    }

    /// Changes the named fields of an object, as a JSON merge patch. With a `resourceVersion` in it, the answer
    /// is 409 if the object has changed since that version.
    pub async fn merge(&self, path: &str, body: &serde_json::Value) -> Result<String, ApiError> {
        self.write(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &serde_json::Value,
    ) -> Result<String, ApiError> {
        self.send(method, path, Some((kind, body))).await.map(|answer| answer.text)
    }

    /// Sends a request, and a read once more with the next client if its own is of no use.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &serde_json::Value)>,
    ) -> Result<Answer, ApiError> {
        let what = format!("{method} {path}");
        let used = AtomicU64::new(0);
        let sent = async {
            let mut attempts = 0;
            loop {
                let failed = |error: String| ApiError::Failed(what.clone(), error);
                let (number, client) = self.client().await.map_err(failed)?;
                used.store(number, Ordering::Relaxed);
                attempts += 1;
                let mut request = Request::builder().method(&method).uri(path);
                let mut bytes = Vec::new();
                if let Some((kind, body)) = body {
                    request = request.header(CONTENT_TYPE, kind);
                    bytes = serde_json::to_vec(body).map_err(|error| failed(error.to_string()))?;
                }
                let request = request.body(bytes).map_err(|error| failed(error.to_string()))?;
                let result = send(&client, request).await.and_then(|reply| match reply.status {
                    status if status.is_success() => Ok(reply.answer),
                    status => {
                        let (what, code) = (what.clone(), status.as_u16());
                        Err(ApiError::Refused { what, code, message: reply.refusal() })
                    }
                });
                let is_useless = match &result {
                    // Credentials may have been replaced.
                    Err(error) => matches!(error, ApiError::Failed(..)) || error.code() == Some(401),
                    Ok(_) => false,
                };
                if !is_useless {
                    return result;
                }
                let opening = self.replace(number);
                if method != Method::GET || attempts >= ATTEMPTS || opening.await.is_err() {
                    return result;
                }
            }
        };
        let Ok(result) = tokio::time::timeout(self.timeout, sent).await else {
            drop(self.replace(used.into_inner()));
            return Err(ApiError::Late(what, self.timeout));
        };
        result
    }

    /// Returns the client and its number. Replaces a client that is about to expire first.
    async fn client(&self) -> Result<(u64, Client), String> {
        let (number, client) = self.last_client();
        if let Some(client) = client
            && expires_in(&client).is_none_or(|left| !left.is_zero())
        {
            return Ok((number, client));
        }
        let replaced = self.replace(number).await;
        match self.last_client() {
            (number, Some(client)) => Ok((number, client)),
            (_, None) => Err(replaced.err().unwrap_or_default().to_string()),
        }
    }

    fn last_client(&self) -> (u64, Option<Client>) {
        let state = self.state();
        (state.number, state.client.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the end of the replacement of the client with this number. It begins unless it is under way, and goes
    /// on without the caller.
    fn replace(&self, number: u64) -> Opening {
        let mut state = self.state();
        if state.number != number {
            return async { Ok(()) }.boxed().shared();
        }
        if let Some(opening) = &state.opening {
            return opening.clone();
        }
        let this = self.clone();
        let opening = async move {
            let opened = this.open_client().await;
            let mut state = this.state();
            state.opening = None;
            let client = opened?;
            state.number += 1;
            state.client = Some(client);
            Ok(())
        };
        let opening = opening.boxed().shared();
        state.opening = Some(opening.clone());
        drop(state);
        tokio::spawn(opening.clone());
        opening
    }

    /// Returns a client whose connection is open: the API server has answered on it, whatever it said.
    async fn open_client(&self) -> Result<Client, Arc<str>> {
        let client = (self.connect)().await.map_err(|error| error.to_string())?;
        let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
        match tokio::time::timeout(self.timeout, client.send(request)).await {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => Err(detail(&error).into()),
            Err(_) => Err(ApiError::Late("GET /version".to_owned(), self.timeout).to_string().into()),
        }
    }
}

/// Sends one request on a client, without a limit of time. The error is that there is no answer, or half of one.
pub async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Reply, ApiError> {
    let what = format!("{} {}", request.method(), request.uri().path());
    let failed = |error: &(dyn std::error::Error + 'static)| ApiError::Failed(what.clone(), detail(error));
    let response = client.send(request.map(Body::from)).await.map_err(|error| failed(&error))?;
    let (head, body) = response.into_parts();
    let date = head.headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| failed(&*error))?;
    Ok(Reply {
        status: head.status,
        retry_after: retry_after(&head.headers),
        connection: head.extensions.get().copied(),
        answer: Answer { text: String::from_utf8_lossy(&body.to_bytes()).into_owned(), date },
    })
}

/// A whole answer of the API server.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The connection on which it came.
    pub connection: Option<Connection>,
    /// Its body and its date.
    pub answer: Answer,
}

impl Reply {
    /// Returns an answer that is an error, as a sentence.
    pub fn refusal(&self) -> String {
        let status = serde_json::from_str::<Status>(&self.answer.text).ok();
        let status = status.unwrap_or_else(|| Status::failure(&self.answer.text, ""));
        bounded(&refusal(&status.with_code(self.status.as_u16())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use std::convert::Infallible;

    #[tokio::test]
    async fn a_client_that_is_about_to_expire_serves_no_other_request() {
        for (seconds, clients) in [(3600, 1), (30, 2)] {
            let built = Arc::new(AtomicU64::new(0));
            let count = built.clone();
            let connect = move || {
                count.fetch_add(1, Ordering::Relaxed);
                let empty = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
                let now = Timestamp::try_from(nodegate_clock::wall()).unwrap();
                let until = Some(now + SignedDuration::from_secs(seconds));
                let client = Client::new(tower::service_fn(empty), "default").with_valid_until(until);
                async { Ok(client) }.boxed()
            };
            let timeout = Duration::from_secs(20);
            let api = KubeApi { timeout, connect: Arc::new(connect), state: Arc::default() };
            for _ in 0..2 {
                api.get("/api/v1/nodes/a").await.unwrap();
            }
            assert_eq!(built.load(Ordering::Relaxed), clients, "{seconds} s are left");
        }
    }
}
