//! The parts of an API server's `/readyz`, which a test can let fail.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use http::header::HeaderValue;

use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;

/// The parts that every API server has, in the order of a real one. `/livez` and `/healthz` have the first
/// three.
const PARTS: [&str; 6] = ["ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"];

/// The failing parts of one API server.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<Vec<String>>,
}

impl Health {
    /// Lets these parts of `/readyz` fail, and no others.
    pub(crate) fn fail(&self, parts: &[&str]) {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Returns the answer of `livez`, `healthz` or `readyz` (`name`) to this query, which may exclude parts.
    pub(crate) fn reply(&self, name: &str, query: &QueryString) -> ApiReply {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fails = |part: &str| name == "readyz" && failing.iter().any(|failing| failing == part);
        let own = PARTS.iter().copied().take(if name == "readyz" { PARTS.len() } else { 3 });
        let more = failing.iter().map(String::as_str).filter(|part| fails(part) && !PARTS.contains(part));
        let excluded: Vec<&str> = query.all("exclude").collect();
        let (mut lines, mut failed, mut unknown) = (Vec::new(), false, excluded.clone());
        for part in own.chain(more) {
            unknown.retain(|name| *name != part);
            if excluded.contains(&part) {
                lines.push(format!("[+]{part} excluded: ok"));
            } else if fails(part) {
                failed = true;
                lines.push(format!("[-]{part} failed: reason withheld"));
            } else {
                lines.push(format!("[+]{part} ok"));
            }
        }
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
            let unknown = unknown.join(",");
            lines.push(format!("warn: some health checks cannot be excluded: no matches for {unknown}"));
        }
        let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
        let (status, text) = match (failed, query.get("verbose")) {
            (true, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{name} check failed\n")),
            (false, Some(_)) => (StatusCode::OK, format!("{text}{name} check passed\n")),
            (false, None) => (StatusCode::OK, "ok".to_owned()),
        };
        let mut reply = reply::typed(status, "text/plain; charset=utf-8", text);
        reply.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        reply
    }
}
