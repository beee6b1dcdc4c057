//! `apiserver`: the API server of this node is ready, for the balancer in front of the API servers.

use crate::check::{Check, Context, KnownNode, Run};
use crate::http_get::{MAX_BODY, get_reason, host_and_port, status_reason};
use crate::settings::{DEFAULT_TIMEOUT, Timing};
use bytes::Bytes;
use http::uri::Scheme;
use http::{Response, StatusCode, Uri};
use nodegate_kube_follow::{Peer, get};
use nodegate_readiness::{Outcome, Reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server that shuts down says so for `--shutdown-delay-duration`, which may be as short as some seconds. One that has
/// lost etcd answers after twice 2 s, and then names it.
pub(crate) const TIMING: Timing = Timing::new(Duration::from_secs(1), DEFAULT_TIMEOUT);

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let usual = || Uri::from_static("https://127.0.0.1:6443");
    let server = context.settings.take("url", url).unwrap_or_else(usual);
    let excluded = context.settings.take("exclude", parts).unwrap_or_default();
    Arc::new(ApiServer {
        readyz: request(&server, "/readyz", &excluded),
        livez: request(&server, "/livez", &excluded),
        counts_etcd: !excluded.iter().any(|part| part == ETCD),
        as_agent: AtomicBool::default(),
    })
}

struct ApiServer {
    readyz: Uri,
    livez: Uri,
    counts_etcd: bool,
    /// The last caller that was not refused was the agent; the next run asks as the same caller first.
    as_agent: AtomicBool,
}

impl Check for ApiServer {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.outcome().await.unwrap_or_else(Outcome::Fail) })
    }
}

impl ApiServer {
    /// Asks for `/readyz`, and for `/livez` if only that one tells of etcd, as with OpenShift's API servers.
    async fn outcome(&self) -> Result<Outcome, Reason> {
        let readyz = self.reply(&self.readyz).await?;
        if readyz.status() != StatusCode::OK || !self.counts_etcd || ask_etcd(readyz.body()) {
            return Ok(judge("ReadyzFailed", &readyz));
        }
        Ok(judge("LivezFailed", &self.reply(&self.livez).await?))
    }

    /// Asks as the caller who was last admitted, and as the other one if that is refused: a cluster may
    /// forbid anonymous requests, and a token may have no right to `/readyz`.
    async fn reply(&self, request: &Uri) -> Result<Response<Bytes>, Reason> {
        let as_agent = self.as_agent.load(Ordering::Relaxed);
        let ask = async |as_agent| {
            get(request, Peer::ApiServer { as_agent }, None, MAX_BODY).await.map_err(get_reason)
        };
        let reply = ask(as_agent).await?;
        if !is_refusal(reply.status()) {
            return Ok(reply);
        }
        let reply = ask(!as_agent).await?;
        if !is_refusal(reply.status()) {
            self.as_agent.store(!as_agent, Ordering::Relaxed);
        }
        Ok(reply)
    }
}

/// Parses the `https://` URL of an API server, without a path.
fn url(text: &str) -> Result<Uri, &'static str> {
    let parse = || {
        let uri: Uri = text.parse().ok()?;
        let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        host_and_port(uri.authority()?, Some(443))?;
        (uri.scheme() == Some(&Scheme::HTTPS) && is_bare).then_some(uri)
    };
    parse().ok_or("takes the URL of an API server without a path, e.g. https://127.0.0.1:6443")
}

/// Returns the outcome of an answer; `code` is the word for parts that failed.
fn judge(code: &'static str, reply: &Response<Bytes>) -> Outcome {
    if reply.status() == StatusCode::OK {
        return Outcome::Pass;
    }
    let reason = status_reason(reply.status());
    Outcome::Fail(if is_refusal(reply.status()) {
        reason.detail("refused without credentials and with the agent's")
    } else {
        failed_parts(code, reply.body()).unwrap_or(reason)
    })
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

// The answer to `/readyz?verbose` or `/livez?verbose` has a line for each part, `[+]ping ok` or `[-]etcd failed:
// reason withheld`, whatever the status (`staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`).

/// The maximum number of excluded parts, and the maximum length of a name.
const MAX_PARTS: usize = 32;
const MAX_NAME: usize = 128;

/// The part that asks etcd. `/livez` has it, too.
const ETCD: &str = "etcd";

/// Parses names of parts of `/readyz`, such as `etcd`, that are separated by `:`.
fn parts(text: &str) -> Result<Vec<String>, &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let parts = text.split(':').map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<String> = parts.map(str::to_owned).collect();
    let sound = |part: &String| part.len() <= MAX_NAME && part.chars().all(allowed);
    let fits = parts.len() <= MAX_PARTS && parts.iter().all(sound);
    fits.then_some(parts)
        .ok_or("takes up to 32 names of parts of /readyz, separated by a colon, e.g. etcd:etcd-readiness")
}

/// Returns the URL of `path` that shows all parts but these, each with its name and its state.
fn request(server: &Uri, path: &str, excluded: &[String]) -> Uri {
    let all = format!("{}{path}?verbose", server.to_string().trim_end_matches('/'));
    let url = excluded.iter().fold(all, |url, part| url + "&exclude=" + part);
    // Names have no characters that a query can't hold.
    url.parse().unwrap_or_else(|_| server.clone())
}

/// Returns the reason, which begins with `code`, if the body names the parts that failed.
fn failed_parts(code: &'static str, body: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = names(&text, "[-]").collect();
    // A single name becomes part of the metric's label; a list is a detail, which does not.
    (!failed.is_empty()).then(|| Reason::new(code).name(&failed.join(", ")))
}

/// Returns true if one of the parts asks etcd.
fn ask_etcd(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut parts = ["[+]", "[-]"].into_iter().flat_map(|mark| names(&text, mark));
    parts.any(|part| matches!(part, ETCD | "etcd-readiness"))
}

/// Returns the names of the parts with this mark.
fn names<'a>(text: &'a str, mark: &'static str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(mark)?.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_without_a_path() {
        for text in ["https://10.0.0.1", "https://[::1]:6443", "https://api.example:6443/"] {
            assert_eq!(url(text).unwrap(), text);
        }
        assert!(url("").is_err() && parts("a,b").is_err());
    }

    fn reason(body: &str) -> Option<String> {
        failed_parts("ReadyzFailed", body.as_bytes()).map(|reason| reason.to_string())
    }

    #[test]
    fn the_failed_parts_are_named() {
        let one = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\nreadyz check failed\n";
        assert_eq!(reason(one).unwrap(), "ReadyzFailed: etcd");
        assert_eq!(failed_parts("LivezFailed", one.as_bytes()).unwrap().label(), "LivezFailed: etcd");
        let two = "[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n";
        assert_eq!(reason(two).unwrap(), "ReadyzFailed: etcd, etcd-readiness");
        for other in ["", "ok", "[+]ping ok\nreadyz check passed\n", "\u{0}[-]\n[-"] {
            assert_eq!(reason(other), None, "{other:?}");
        }
    }

    #[test]
    fn etcd_is_found_in_any_state() {
        for body in ["[+]ping ok\n[+]etcd ok\n", "[+]etcd excluded: ok\n", "[-]etcd-readiness failed: no\n"] {
            assert!(ask_etcd(body.as_bytes()), "{body}");
        }
        let others = "[+]ping ok\n[+]etcd-override-0 ok\n[+]poststarthook/etcd ok\nreadyz check passed\n";
        for body in ["", "ok", "etcd", others] {
            assert!(!ask_etcd(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn each_part_is_left_out_by_its_name() {
        let excluded = parts(" etcd: poststarthook/rbac_bootstrap.x-1 :").unwrap();
        let server = url("https://10.0.0.1:6443").unwrap();
        let readyz =
            "https://10.0.0.1:6443/readyz?verbose&exclude=etcd&exclude=poststarthook/rbac_bootstrap.x-1";
        assert_eq!(request(&server, "/readyz", &excluded), readyz);
        assert_eq!(request(&server, "/livez", &parts("").unwrap()), "https://10.0.0.1:6443/livez?verbose");
    }
}
