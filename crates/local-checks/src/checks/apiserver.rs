//! `apiserver`: the API server of this node is ready, for the balancer in front of the API servers.

use crate::check::{Check, DEFAULT_TIMEOUT, Definition, KnownNode, Run, Timing};
use crate::http_get::{MAX_BODY, get, status_reason};
use crate::options::{Key, Options};
use crate::url::HostPort;
use bytes::Bytes;
use http::uri::Scheme;
use http::{Response, StatusCode, Uri};
use nodegate_kube_follow::Peer;
use nodegate_readiness::{Outcome, Reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    exclude: ReadyzParts,
    readyz: Uri,
    livez: Uri,
    /// The last caller that was not refused was the agent; the next run asks as the same caller first.
    as_agent: AtomicBool,
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
        let (readyz, livez) = (exclude.request(&url, "/readyz"), exclude.request(&url, "/livez"));
        Self { exclude, readyz, livez, as_agent: AtomicBool::default() }
    }

    /// Asks for `/readyz`, and for `/livez` if only that one tells of etcd, as with OpenShift's API servers.
    async fn outcome(&self) -> Result<Outcome, Reason> {
        let readyz = self.reply(&self.readyz).await?;
        let tells_etcd = ask_etcd(readyz.body()) || self.exclude.0.iter().any(|part| part == ETCD);
        if readyz.status() != StatusCode::OK || tells_etcd {
            return Ok(judge("ReadyzFailed", &readyz));
        }
        Ok(judge("LivezFailed", &self.reply(&self.livez).await?))
    }

    /// Asks as the caller who was last admitted, and as the other one if that is refused: a cluster may
    /// forbid anonymous requests, and a token may have no right to `/readyz`.
    async fn reply(&self, request: &Uri) -> Result<Response<Bytes>, Reason> {
        let as_agent = self.as_agent.load(Ordering::Relaxed);
        let ask = |as_agent| get(request, Peer::ApiServer { as_agent }, None, MAX_BODY);
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

/// How many failed parts a reason names. A server that is starting up has a dozen failed ones.
const NAMED: usize = 4;

/// Names of parts of `/readyz`, such as `etcd`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReadyzParts(Vec<String>);

impl ReadyzParts {
    /// Parses names that are separated by `:`.
    fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let parts = text.split(':').map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        let sound = |part: &String| part.len() <= MAX_NAME && part.chars().all(allowed);
        let takes =
            "takes up to 32 names of parts of /readyz, separated by a colon, e.g. etcd:etcd-readiness";
        let fits = parts.len() <= MAX_PARTS && parts.iter().all(sound);
        fits.then_some(Self(parts)).ok_or(takes.to_owned())
    }

    /// Returns the URL of `path` for all other parts, each with its name and its state.
    fn request(&self, server: &Uri, path: &str) -> Uri {
        let all = format!("{}{path}?verbose", server.to_string().trim_end_matches('/'));
        let url = self.0.iter().fold(all, |url, part| url + "&exclude=" + part);
        // Names have no characters that a query can't hold.
        url.parse().unwrap_or_else(|_| server.clone())
    }
}

/// Returns the reason, which begins with `code`, if the body names the parts that failed.
fn failed_parts(code: &'static str, body: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = names(&text, "[-]").collect();
    let reason = Reason::new(code);
    match failed.as_slice() {
        [] => None,
        // A name becomes part of the metric's label; a detail does not.
        [part] => Some(reason.name(part)),
        all => {
            let named: Vec<&str> = all.iter().take(NAMED).copied().collect();
            let more = all.len().checked_sub(NAMED).filter(|more| *more > 0);
            let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
            Some(reason.detail(format_args!("{}{more}", named.join(", "))))
        }
    }
}

/// Returns true if one of the parts asks etcd.
fn ask_etcd(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    ["[+]", "[-]"]
        .into_iter()
        .flat_map(|mark| names(&text, mark))
        .any(|part| matches!(part, ETCD | "etcd-readiness"))
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
        let names: Vec<String> =
            (0..6).map(|n| format!("[-]poststarthook/{n} failed: not finished")).collect();
        let names = names.join("\n");
        let four = "ReadyzFailed: poststarthook/0, poststarthook/1, poststarthook/2, poststarthook/3";
        assert_eq!(reason(&names).unwrap(), format!("{four} and 2 more"));
        for other in
            ["", "ok", "[+]ping ok\nreadyz check passed\n", "Internal Server Error\n", "\u{0}[-]\n[-"]
        {
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
        let parts = ReadyzParts::parse(" etcd: poststarthook/rbac_bootstrap.x-1 :").unwrap();
        let server = url("https://10.0.0.1:6443").unwrap();
        let request =
            "https://10.0.0.1:6443/readyz?verbose&exclude=etcd&exclude=poststarthook/rbac_bootstrap.x-1";
        assert_eq!(parts.request(&server, "/readyz"), request);
        let livez = ReadyzParts::parse("").unwrap().request(&server, "/livez");
        assert_eq!(livez, "https://10.0.0.1:6443/livez?verbose");
        let many = "a:".repeat(33);
        for text in ["a b", "a&b", "a=b", "a#b", "ä", "a%20", "a,b", &many, &"a".repeat(129)] {
            assert!(ReadyzParts::parse(text).is_err(), "{text:?}");
        }
    }
}
