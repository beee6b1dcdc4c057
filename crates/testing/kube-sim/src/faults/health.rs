//! The parts of an API server's `/readyz`, `/livez` and `/healthz`, which a test can let fail.

use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;
use http::StatusCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The parts that every API server has, in the order of a real one.
const PARTS: [&str; 6] = ["ping", "log", ETCD[0], ETCD[1], "informer-sync", "shutdown"];
/// `/livez` and `/healthz` have the first three.
const ALIVE: usize = 3;
const ETCD: [&str; 2] = ["etcd", "etcd-readiness"];

/// The failing parts of one API server.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<Vec<String>>,
    /// True if `/readyz` has no part that asks etcd, as OpenShift's.
    pub(crate) readyz_without_etcd: AtomicBool,
}

impl Health {
    /// Lets these parts fail, and no others.
    pub(crate) fn fail(&self, parts: &[&str]) {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Returns the answer of `livez`, `healthz` or `readyz` (`name`) to this query, which may exclude parts.
    pub(crate) fn reply(&self, name: &str, query: &QueryString) -> ApiReply {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_readyz = name == "readyz";
        let own = PARTS.iter().copied().take(if is_readyz { PARTS.len() } else { ALIVE });
        let without_etcd = is_readyz && self.readyz_without_etcd.load(Ordering::Relaxed);
        let own = own.filter(|part| !(without_etcd && ETCD.contains(part)));
        let more = failing.iter().map(String::as_str).filter(|part| is_readyz && !PARTS.contains(part));
        let excluded: Vec<&str> = query.all("exclude").collect();
        let (mut lines, mut failed, mut unknown) = (Vec::new(), false, excluded.clone());
        for part in own.chain(more) {
            unknown.retain(|name| *name != part);
            if excluded.contains(&part) {
                lines.push(format!("[+]{part} excluded: ok"));
                continue;
            }
            if failing.iter().any(|failing| failing == part) {
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
        reply::plain(status, text)
    }
}
