//! Probe requests, normalized so that all spellings of a request are equal.

use crate::route::{Route, SERVICES_PREFIX};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use nodegate_http::Client;
use nodegate_readiness::probers::{AGENT_CHECK, ProberKind, ServerState};
use nodegate_readiness::{Board, CheckId, CheckRef, Moment, Query};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use std::hash::{Hash, Hasher};

/// The characters that stay unescaped. The text comes from strangers, and appears on a page, on terminals and
/// in a label.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b',');

/// The maximum length of a shown probe request, in bytes; longer ones are cut. Hundreds of them take memory
/// and are shown. The longest path of a Service with `drain=` fits.
const MAX_SHOWN: usize = 160;

/// The text for HAProxy's default check.
const OPTIONS: &str = "OPTIONS /";

/// The number of bytes that are read of an `agent-send` string.
pub(crate) const MAX_AGENT_SEND: usize = 64;

/// The header in which HAProxy describes its server (`http-check send-state`).
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// The longest server state that is read, in bytes. The agent keeps the names in it, and shows them in the
/// status.
const MAX_STATE_BYTES: usize = 512;

/// A probe: from which client it came and when, and what the client says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) client: Client,
    /// The value of `X-Haproxy-Server-State`.
    server_state: Option<HeaderValue>,
    pub(crate) route: Route,
    /// The moment for which its answer is true.
    pub(crate) at: Moment,
}

impl Probe {
    /// Creates a probe, and takes the server state out of its headers.
    pub(crate) fn new(client: Client, headers: &mut HeaderMap, route: Route, at: Moment) -> Self {
        Self { client, server_state: headers.remove(&SERVER_STATE), route, at }
    }

    /// Returns what the client says of itself, if it is a HAProxy.
    pub(super) fn server_state(&self) -> Option<ServerState<'_>> {
        let state = self.server_state.as_ref()?.as_bytes();
        ServerState::parse(state).filter(|_| state.len() <= MAX_STATE_BYTES)
    }
}

/// The unparsed probe request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestTarget<'a> {
    /// A path with its query, and the time of the pool change of the Service that it is about; a plain `OPTIONS` has
    /// the path of its root.
    Http { path: &'a str, query: &'a str, changed: Moment },
    /// HAProxy's agent-check, with its `agent-send` string.
    AgentCheck { sent: &'a [u8] },
    /// A request that gets no verdict: the page, another path or method, or no HTTP/1.
    Stray { text: &'a str },
}

/// A probe request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProbeRequest {
    /// The normalized text, equal for all spellings.
    pub(super) text: String,
    pub(super) kind: ProberKind,
    pub(super) checks: Vec<CheckId>,
}

impl Hash for RequestTarget<'_> {
    /// Hashes the unparsed request.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::Http { path, query, .. } => (path, query).hash(hasher),
            // Neither mark can be a path.
            Self::AgentCheck { sent } => ("\0", sent).hash(hasher),
            Self::Stray { text } => ("?", text).hash(hasher),
        }
    }
}

impl RequestTarget<'_> {
    /// Parses the request. Only the parameters that change the answer count; others are ignored, as they are
    /// for the answer.
    pub(super) fn parse(&self, board: &Board) -> ProbeRequest {
        let (path, mut query) = match self {
            Self::AgentCheck { sent } => return agent_check(sent, board),
            Self::Stray { text } => {
                let words: Vec<_> = text.split(' ').map(harmless).collect();
                let text = cut(words.join(" "));
                return ProbeRequest { text, kind: ProberKind::Other, checks: Vec::new() };
            }
            Self::Http { path, query, .. } => {
                (*path, Query::parse(query, board.catalog()).unwrap_or_default())
            }
        };
        let service = path.strip_prefix(SERVICES_PREFIX);
        if service.is_some() {
            query.checks.clear();
        }
        let checks: Vec<_> = query.known().collect();
        let (sees_drains, ignores_label) = (query.drain.is_some(), query.excluded);
        let kind = match service.map(|name| board.catalog().service(name)) {
            Some(Some(index)) => ProberKind::Service { index, sees_drains, ignores_label },
            Some(None) => ProberKind::Other,
            None if query.checks.is_empty() => kind_of(board.default_checks(), ignores_label),
            None => kind_of(checks.iter().copied(), ignores_label),
        };
        let names = query.checks.iter().map(|check| match check {
            CheckRef::Known(id) => board.catalog().name(*id),
            CheckRef::Unknown(name) => name,
        });
        let names: Vec<_> = names.map(harmless).collect();
        let check = (!names.is_empty()).then(|| format!("check={}", names.join(",")));
        let drain = query.drain.map(|code| format!("drain={code}"));
        let excluded = query.excluded.then(|| "excluded=200".to_owned());
        let parameters: Vec<_> = check.into_iter().chain(drain).chain(excluded).collect();
        let path = if matches!(path, "/" | "*") { OPTIONS.to_owned() } else { harmless(path) };
        let text = if parameters.is_empty() { path } else { format!("{path}?{}", parameters.join("&")) };
        ProbeRequest { text: cut(text), kind, checks }
    }
}

/// Parses a probe request in its shown form. Returns `None` if this agent would show it otherwise, or if it
/// does not ask for the verdict.
pub(super) fn parse_shown(text: &str, board: &Board) -> Option<ProbeRequest> {
    let sent;
    let target = if let Some(said) = text.strip_prefix(AGENT_CHECK) {
        sent = percent_decode(said.trim_start().as_bytes()).collect::<Vec<u8>>();
        RequestTarget::AgentCheck { sent: &sent }
    } else if !text.starts_with('/') && !text.starts_with(OPTIONS) {
        RequestTarget::Stray { text }
    } else {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (method, path) = if path == OPTIONS { (Method::OPTIONS, "*") } else { (Method::GET, path) };
        match Route::of(&method, path) {
            Route::Services | Route::Health | Route::NodeCheck => {
                RequestTarget::Http { path, query, changed: Moment::default() }
            }
            _ => return None,
        }
    };
    Some(target.parse(board)).filter(|parsed| parsed.text == text)
}

fn agent_check(sent: &[u8], board: &Board) -> ProbeRequest {
    let line = sent.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.get(..MAX_AGENT_SEND).unwrap_or(line)).trim().to_owned();
    let text =
        if line.is_empty() { AGENT_CHECK.to_owned() } else { format!("{AGENT_CHECK} {}", harmless(&line)) };
    ProbeRequest { text, kind: kind_of(board.default_checks(), false), checks: Vec::new() }
}

/// Returns the kind of a prober of these checks; `node_ready` is the only one that drains change.
fn kind_of(mut checks: impl Iterator<Item = CheckId>, ignores_label: bool) -> ProberKind {
    let sees_drains = checks.any(|id| id == CheckId::NodeReady);
    if sees_drains { ProberKind::Node { ignores_label } } else { ProberKind::Other }
}

/// Escapes foreign text into harmless characters.
fn harmless(text: &str) -> String {
    let decoded = percent_decode(text.as_bytes()).decode_utf8_lossy();
    utf8_percent_encode(&decoded, SHOWN).to_string()
}

/// Cuts long text. A hash of the whole text at the end, the same in every process, keeps different texts apart.
fn cut(text: String) -> String {
    let Some(kept) = text.get(..MAX_SHOWN).filter(|_| text.len() > MAX_SHOWN) else { return text };
    let fold = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{kept}*{:x}", text.bytes().fold(0x811c_9dc5, fold))
}
