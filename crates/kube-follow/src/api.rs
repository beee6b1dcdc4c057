//! Single requests to the API server: quorum reads and a few writes.

use crate::client::{Connector, expires_in};
use crate::connection::{Connection, retry_after};
use crate::failure_reason::{detail, refusal};
use crate::foreign_answer::bounded;
use crate::observe::NoObserver;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The longest answer. etcd's own limit is 1.5 MiB for an object.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The most attempts of a read. A replacement that was under way at the first failure may have the same credentials.
const ATTEMPTS: u32 = 3;

/// Why a request to the API server failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ApiError {
    /// The request: its verb and path.
    pub what: String,
    /// The reason. Of an answer that is an error, its code with the message of the API server.
    pub why: String,
    /// The HTTP status, if there is an answer.
    pub code: Option<u16>,
}

impl ApiError {
    fn new(what: &str, why: impl Display) -> Self {
        Self { what: what.to_owned(), why: why.to_string(), code: None }
    }

    fn late(what: &str, within: Duration) -> Self {
        Self::new(what, format_args!("no answer from the API server within {} ms", within.as_millis()))
    }
}

/// A client that is replaced after a failure, with the credentials of that moment.
///
/// One connection at a time is opened, for all requests that wait for it.
#[derive(Clone)]
pub struct KubeApi {
    timeout: Duration,
    connector: Connector,
    in_use: Arc<Mutex<Option<Opening>>>,
}

/// The client that is in use or being opened, or the reason why there is none.
type Opening = Shared<BoxFuture<'static, Result<Client, Arc<str>>>>;

/// An object of the API server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The body of the answer.
    pub text: String,
    /// The API server's own time of the answer, in whole seconds.
    pub date: Option<SystemTime>,
}

impl KubeApi {
    /// Creates an access that waits for each answer for at most `timeout`. Nothing is sent yet.
    pub fn new(timeout: Duration) -> Self {
        Self::over(Connector::Network, timeout)
    }

    /// Creates the same access with this source of clients.
    pub fn over(connector: Connector, timeout: Duration) -> Self {
        Self { timeout, connector, in_use: Arc::default() }
    }

    /// Parses an object from etcd: no `resourceVersion` is a quorum read. `None` if there is none.
    pub async fn get<T>(
        &self,
        path: &str,
        parse: impl FnOnce(&Answer) -> serde_json::Result<T>,
    ) -> Result<Option<T>, ApiError> {
        let unreadable = |error| ApiError::new(path, format_args!("unreadable answer: {error}"));
        match self.send(Method::GET, path, None).await {
            Ok(answer) => parse(&answer).map(Some).map_err(unreadable),
            Err(ApiError { code: Some(404), .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object, or a subresource such as an eviction.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, ApiError> {
        self.send(Method::POST, path, Some(("application/json", body))).await
    }

    /// Replaces the object at a path by another one.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer, ApiError> {
        self.send(Method::PUT, path, Some(("application/json", body))).await
    }

    /// Patches an object, in the way of `kubectl patch`. With a `resourceVersion` in it, the answer is 409 if the
    /// object has changed since that version.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Answer, ApiError> {
        self.send(Method::PATCH, path, Some(("application/strategic-merge-patch+json", body))).await
    }

    /// Changes the named fields of an object, as a JSON merge patch. With a `resourceVersion` in it, the answer
    /// is 409 if the object has changed since that version.
    pub async fn merge(&self, path: &str, body: &Value) -> Result<Answer, ApiError> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body))).await
    }

    /// Sends a request, and a read up to [`ATTEMPTS`] times, each with the next client if the last was of no use.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Answer, ApiError> {
        let what = &format!("{method} {path}");
        let mut request = Request::builder().method(&method).uri(path);
        if let Some((kind, _)) = body {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(body.map_or_else(Vec::new, |(_, body)| body.to_string().into_bytes()));
        let request = request.map_err(|error| ApiError::new(what, error))?;
        let first = self.client();
        let sent = async {
            let (mut opening, mut attempts) = (first.clone(), 0);
            loop {
                attempts += 1;
                let client = opening.clone().await.map_err(|why| ApiError::new(what, why))?;
                let result = send(&client, request.clone()).await.and_then(|reply| reply.accepted(what));
                // Credentials may have been replaced.
                let is_useless = result.as_ref().is_err_and(|error| matches!(error.code, None | Some(401)));
                if is_useless {
                    self.forget(&opening);
                }
                if !is_useless || method != Method::GET || attempts >= ATTEMPTS {
                    return result;
                }
                opening = self.client();
            }
        };
        tokio::time::timeout(self.timeout, sent).await.unwrap_or_else(|_| {
            self.forget(&first);
            Err(ApiError::late(what, self.timeout))
        })
    }

    /// Returns the client in use. Opens the next one if there is none, or if it is about to expire.
    fn client(&self) -> Opening {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let is_useful = |opening: &&Opening| match opening.peek() {
            Some(Ok(client)) => expires_in(client).is_none_or(|left| !left.is_zero()),
            Some(Err(_)) => false,
            None => true,
        };
        if let Some(opening) = in_use.as_ref().filter(is_useful) {
            return opening.clone();
        }
        let opening = open(self.connector.clone(), self.timeout).boxed().shared();
        // It goes on without the caller: a credential plugin may run for seconds, and no request would leave it the time.
        tokio::spawn(opening.clone());
        in_use.insert(opening).clone()
    }

    /// Forgets a client that is of no use, unless it is still being opened, or no longer in use.
    fn forget(&self, useless: &Opening) {
        let is_it = |opening: &mut Opening| opening.ptr_eq(useless) && opening.peek().is_some();
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_it);
    }
}

/// Returns a client whose connection is open: the API server has answered on it, whatever it said.
async fn open(connector: Connector, timeout: Duration) -> Result<Client, Arc<str>> {
    let client = connector.connect(Arc::new(NoObserver)).await?;
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(timeout, client.send(request)).await {
        Ok(Ok(_)) => Ok(client),
        Ok(Err(error)) => Err(detail(&error).into()),
        Err(_) => Err(ApiError::late("GET /version", timeout).to_string().into()),
    }
}

/// Sends one request on a client, without a limit of time. The error is that there is no answer, or half of one.
pub async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Reply, ApiError> {
    let what = format!("{} {}", request.method(), request.uri().path());
    let failed = |error: &(dyn std::error::Error + 'static)| ApiError::new(&what, detail(error));
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
    fn accepted(self, what: &str) -> Result<Answer, ApiError> {
        if self.status.is_success() {
            return Ok(self.answer);
        }
        Err(ApiError { code: Some(self.status.as_u16()), ..ApiError::new(what, self.refusal()) })
    }

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
    use crate::observe::BoxedService;
    use http::Response;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tower::BoxError;

    #[tokio::test]
    async fn a_client_that_is_about_to_expire_serves_no_other_request() {
        for (seconds, clients) in [(3600, 1), (30, 2)] {
            let built = Arc::new(AtomicU64::new(0));
            let count = built.clone();
            let open = move || {
                count.fetch_add(1, Ordering::Relaxed);
                let empty = |_: Request<Body>| async {
                    Ok(Response::new(Body::empty().map_err(BoxError::from).boxed_unsync()))
                };
                BoxedService::new(tower::service_fn(empty))
            };
            let api = KubeApi::over(Connector::Simulated(Arc::new(open)), Duration::from_secs(20));
            let now = Timestamp::try_from(nodegate_clock::wall()).unwrap();
            let until = Some(now + SignedDuration::from_secs(seconds));
            let first = api.client().await.unwrap().with_valid_until(until);
            let opened = async { Ok(first) }.boxed().shared();
            opened.clone().await.unwrap();
            *api.in_use.lock().unwrap() = Some(opened);
            for _ in 0..2 {
                api.get("/api/v1/nodes/a", |_| Ok(())).await.unwrap();
            }
            assert_eq!(built.load(Ordering::Relaxed), clients, "{seconds} s are left");
        }
    }
}
