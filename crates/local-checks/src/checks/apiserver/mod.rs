//! `apiserver`: the API server of this node is ready, for the balancer in front of the API servers.

mod parts;

use crate::check::{Check, DEFAULT_TIMEOUT, Definition, KnownNode, Run, Timing};
use crate::http_get::{HttpReply, MAX_BODY, get_verified, status_reason};
use crate::options::{Key, Options};
use crate::url::HostPort;
use http::uri::{PathAndQuery, Scheme};
use http::{StatusCode, Uri};
use nodegate_kube_follow::{Caller, Peer};
use nodegate_readiness::{Outcome, Reason};
use parts::ReadyzParts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

/// A server that shuts down says so for `--shutdown-delay-duration`, which may be as short as some seconds.
const INTERVAL: Duration = Duration::from_secs(1);

const URL: Key<Uri> = Key { name: "url", parse: url };
/// The parts of `/readyz` that do not count.
const EXCLUDE: Key<ReadyzParts> = Key { name: "exclude", parse: ReadyzParts::parse };

pub(crate) const DEFINITION: Definition = Definition {
    name: "apiserver",
    options: &[&URL, &EXCLUDE],
    // An API server that has lost etcd answers after twice 2 s, and then names it.
    timing: Timing::new(INTERVAL, DEFAULT_TIMEOUT),
    new: |context| Arc::new(ApiServer::new(context.options)),
};

struct ApiServer {
    url: Uri,
    exclude: ReadyzParts,
    readyz: PathAndQuery,
    livez: PathAndQuery,
    /// The last caller that was not refused was the agent; the next run asks as the same caller first.
    as_agent: AtomicBool,
    /// The log has the names that can't be left out.
    warned: Once,
}

impl Check for ApiServer {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.outcome().await.unwrap_or_else(Outcome::Fail) })
    }
}

impl ApiServer {
    fn new(options: &Options) -> Self {
        let url = options.get(&URL).unwrap_or_else(|| Uri::from_static("https://127.0.0.1:6443"));
        let exclude = options.get(&EXCLUDE).unwrap_or_default();
        let (readyz, livez) = (exclude.request("/readyz"), exclude.request("/livez"));
        Self { url, exclude, readyz, livez, as_agent: AtomicBool::default(), warned: Once::new() }
    }

    /// Asks for `/readyz`, and for `/livez` if only that one tells of etcd, as with OpenShift's API servers.
    async fn outcome(&self) -> Result<Outcome, Reason> {
        let readyz = self.reply(&self.readyz).await?;
        self.warn_of_unknown_parts(&readyz);
        let tells_etcd =
            parts::ask_etcd(&readyz.body) || self.exclude.0.iter().any(|part| part == parts::ETCD);
        if readyz.status != StatusCode::OK || tells_etcd {
            return Ok(judge("ReadyzFailed", &readyz));
        }
        Ok(judge("LivezFailed", &self.reply(&self.livez).await?))
    }

    /// Asks as the caller who was last admitted, and as the other one if that is refused: a cluster may
    /// forbid anonymous requests, and a token may have no right to `/readyz`.
    async fn reply(&self, request: &PathAndQuery) -> Result<HttpReply, Reason> {
        let as_agent = self.as_agent.load(Ordering::Relaxed);
        let (first, second) =
            if as_agent { (Caller::Agent, Caller::Anonymous) } else { (Caller::Anonymous, Caller::Agent) };
        let reply = self.ask(request, first).await?;
        if !is_refusal(reply.status) {
            return Ok(reply);
        }
        let reply = self.ask(request, second).await?;
        if !is_refusal(reply.status) {
            self.as_agent.store(!as_agent, Ordering::Relaxed);
        }
        Ok(reply)
    }

    async fn ask(&self, request: &PathAndQuery, caller: Caller) -> Result<HttpReply, Reason> {
        get_verified(&self.url, Peer::ApiServer, caller, request, MAX_BODY).await
    }

    /// Warns once: a name with a mistake leaves nothing out, and no answer of the check would show it.
    fn warn_of_unknown_parts(&self, readyz: &HttpReply) {
        let unknown = parts::unknown_parts(&self.exclude, &readyz.body);
        if !unknown.is_empty() {
            self.warned.call_once(|| {
                let parts = unknown.join(",");
                tracing::warn!(parts, "apiserver:exclude names parts that the API server does not have");
            });
        }
    }
}

/// Parses the `https://` URL of an API server, without a path.
fn url(text: &str) -> Result<Uri, String> {
    let parse = || {
        let uri: Uri = text.parse().ok()?;
        let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        HostPort::of(uri.authority()?, Some(443)).ok()?;
        (uri.scheme() == Some(&Scheme::HTTPS) && is_bare).then_some(uri)
    };
    parse().ok_or("takes the URL of an API server without a path, e.g. https://127.0.0.1:6443".to_owned())
}

/// Returns the outcome of an answer; `code` is the word for parts that failed.
fn judge(code: &'static str, reply: &HttpReply) -> Outcome {
    if reply.status == StatusCode::OK {
        return Outcome::Pass;
    }
    let reason = status_reason(reply.status);
    Outcome::Fail(if is_refusal(reply.status) {
        reason.detail("refused without credentials and with the agent's")
    } else {
        parts::failed_parts(code, &reply.body).unwrap_or(reason)
    })
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_without_a_path() {
        for text in
            ["https://10.0.0.1", "https://[::1]:6443", "https://api.example:8443", "https://10.0.0.1:6443/"]
        {
            assert_eq!(url(text).unwrap(), text);
        }
        for text in [
            "",
            "127.0.0.1:6443",
            "http://127.0.0.1:6443",
            "https://127.0.0.1:6443/readyz",
            "https://127.0.0.1:6443/?verbose",
            "https://me@127.0.0.1:6443",
            "https://:6443",
            "https://127.0.0.1:0",
            "https://127.0.0.1:65536",
        ] {
            assert!(url(text).is_err(), "{text:?}");
        }
    }
}
