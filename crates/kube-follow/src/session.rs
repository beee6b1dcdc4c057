//! One session of a follower: a list, then a watch until a fault.

use crate::failure_reason::{FailureReason, detail};
use futures::TryStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// The list to follow. It is a consistent list, the default of kube's watcher.
pub struct Session<K> {
    /// The API of the objects.
    pub api: Api<K>,
    /// The selection of objects, the page size, and the lifetime of a watch.
    pub config: watcher::Config,
    /// The timeout of the list.
    pub list_within: Duration,
}

/// The end of a session.
#[derive(Debug)]
pub struct SessionEnd {
    /// The reason, for the metric.
    pub reason: FailureReason,
    /// The reason, for people.
    pub detail: String,
    /// The duration of the session.
    pub lasted: Duration,
}

impl SessionEnd {
    /// Returns a session that could not begin.
    pub fn before_it_began(reason: FailureReason, detail: String) -> Self {
        Self { reason, detail, lasted: Duration::ZERO }
    }
}

impl<K> Session<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Lists and watches, and passes each event to `told`, until a fault, or until `stop` resolves with a
    /// reason.
    pub async fn run(
        self,
        stop: impl Future<Output = (FailureReason, String)>,
        mut told: impl FnMut(Event<K>),
    ) -> SessionEnd {
        let began = Instant::now();
        let ended = |reason, detail| SessionEnd { reason, detail, lasted: began.elapsed() };
        let mut events = pin!(watcher(self.api, self.config));
        let mut stop = pin!(stop);
        let mut listed = false;
        loop {
            let event = tokio::select! {
                // The reason of `stop` comes first: the events may show another reason a moment later.
                biased;
                (reason, detail) = &mut stop => return ended(reason, detail),
                event = events.try_next() => event,
                () = tokio::time::sleep_until(began + self.list_within), if !listed => {
                    return ended(FailureReason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => {
                    listed |= matches!(event, Event::InitDone);
                    told(event);
                }
                Ok(None) => {
                    return ended(FailureReason::Disconnected, "the stream of events ended".to_owned());
                }
                Err(error) => return ended(FailureReason::of(&error), detail(&error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tagged;
    use crate::observe::{NoObserver, ObservingService, StreamId};
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::Node;
    use kube::Client;
    use kube::client::Body;
    use std::cell::Cell;
    use std::future::pending;
    use std::sync::Arc;
    use tower::BoxError;

    /// Returns a session whose lists get this answer, or none, and whose watches end at once.
    fn session(list: Option<(u16, &'static str)>) -> Session<Node> {
        let answer = move |request: Request<Body>| async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
            let Some((code, body)) = (if watches { Some((200, "")) } else { list }) else {
                return pending().await;
            };
            let mut answer = Response::builder().status(code);
            if let Some(to) = body.strip_prefix("to:") {
                answer = answer.header("location", to);
            } else if body.starts_with('<') {
                answer = answer.header("content-type", "text/html");
            }
            Ok::<_, BoxError>(answer.body(Full::new(Bytes::from_static(body.as_bytes())))?)
        };
        let observed = ObservingService::new(tower::service_fn(answer), Arc::new(NoObserver));
        let within = Duration::from_secs(4);
        let client = tagged(Client::new(observed, "default"), StreamId(0), within, within);
        let list_within = Duration::from_mins(1);
        Session { api: Api::all(client), config: watcher::Config::default(), list_within }
    }

    const EMPTY: &str =
        r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
    const BAD_REQUEST: &str =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}"#;

    const FORBIDDEN: &str =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","code":403}"#;
    const INDENTED: &str = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"status\": \"Failure\",\n  \
         \"message\": \"etcd is away\",\n  \"code\": 503\n}";
    /// From a proxy before the API server.
    const HTML: &str = "<style>\nbody {\n  color: red;\n}\n</style>\nno";

    /// A proxy's page, as any body, must not look like something of the API.
    #[tokio::test(start_paused = true)]
    async fn each_end_has_its_reason() {
        use FailureReason::{
            BadRequest, ClosedEarly, Forbidden, Malformed, ServerError, Timeout, Unauthorized,
        };
        for (list, reason, said) in [
            (None, Timeout, "no answer within 4 s"),
            (Some((400, BAD_REQUEST)), BadRequest, "400 Bad Request"),
            (Some((200, r#"{"kind":"NodeList","#)), Malformed, "the answer is not one of the Kubernetes API"),
            (Some((200, r#"{"hello":"world"}"#)), Malformed, "the answer is not one of the Kubernetes API"),
            (Some((200, EMPTY)), ClosedEarly, "the last watch was closed right after"),
            (Some((403, FORBIDDEN)), Forbidden, "403 Forbidden: nodes is forbidden"),
            (Some((503, INDENTED)), ServerError, "503 Service Unavailable: etcd is away"),
            (Some((302, "to:/login?a=b")), ServerError, "HTTP 302 to /login: this is not a Kubernetes API"),
            (Some((403, HTML)), ServerError, "HTTP 403 with a web page"),
            (Some((401, HTML)), Unauthorized, "HTTP 401 with a web page"),
        ] {
            let ended = session(list).run(pending(), |_| {}).await;
            assert_eq!(ended.reason, reason, "{}", ended.detail);
            assert!(ended.detail.starts_with(said), "{}", ended.detail);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_it_says_why_and_what_was_listed_is_told() {
        let listed = Cell::new(false);
        let relist = async {
            while !listed.get() {
                tokio::task::yield_now().await;
            }
            (FailureReason::Relist, "it is time".to_owned())
        };
        let told = |event| listed.set(matches!(event, Event::InitDone) || listed.get());
        let ended = session(Some((200, EMPTY))).run(relist, told).await;
        assert_eq!((ended.reason, ended.detail.as_str()), (FailureReason::Relist, "it is time"));
        assert!(listed.get());
    }
}
