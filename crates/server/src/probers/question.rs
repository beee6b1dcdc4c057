//! A probe request, in one form for all ways to send it.

use crate::route::{Route, SERVICES_PREFIX};
use http::Method;
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::probers::AGENT_CHECK;
use nodegate_readiness::{Board, CheckId, CheckRef, Query};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use std::hash::Hasher;
use std::io::Write;
use std::net::IpAddr;

/// What stays as it is. It is shown on a page, on terminals and as a label, and comes from strangers.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b',');

/// Longer questions are cut: there are hundreds, which take memory and are shown.
const MOST_SHOWN: usize = 120;

/// How the default check of HAProxy is shown.
const OPTIONS: &str = "OPTIONS /";

/// As much of an `agent-send` string is read.
pub(crate) const MOST_OF_AGENT_SEND: usize = 64;

/// A question as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeRequest<'a> {
    /// Who asks.
    pub(crate) peer: IpAddr,
    /// What.
    pub(crate) asks: Asks<'a>,
    /// The value of `X-Haproxy-Server-State`.
    pub(crate) server_state: Option<&'a [u8]>,
}

/// What can be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asks<'a> {
    /// A path with its query; a plain `OPTIONS` has the path of its root.
    Http { path: &'a str, query: &'a str },
    /// `HAProxy`'s agent-check, with what its `agent-send` says.
    AgentCheck { sent: &'a [u8] },
}

/// A question, understood.
pub(super) struct Understood {
    /// The same text for all ways to ask the same.
    pub(super) text: String,
    /// Whether a drain changes the answer.
    pub(super) drainable: bool,
    /// The checks that it names.
    pub(super) checks: Vec<CheckId>,
}

impl ProbeRequest<'_> {
    /// Who asks, and what, as it came: all at once if it is not long, since each part that is hashed by itself costs as much as
    /// a whole question.
    pub(super) fn write_to(&self, hasher: &mut impl Hasher) {
        let peer = match self.peer {
            IpAddr::V4(peer) => peer.to_ipv6_mapped(),
            IpAddr::V6(peer) => peer,
        };
        let peer = peer.octets();
        // Neither is the end of a path, nor of a query, nor a path.
        let (what, mark, query) = match self.asks {
            Asks::Http { path, query } => (path.as_bytes(), b"?", query.as_bytes()),
            Asks::AgentCheck { sent } => (sent, b"\0", [].as_slice()),
        };
        let parts = [&peer[..], what, mark, query];
        let mut whole = [0; 96];
        let mut room = &mut whole[..];
        if parts.iter().map(|part| part.len()).sum::<usize>() > room.len() {
            return parts.iter().for_each(|part| hasher.write(part));
        }
        for part in parts {
            // There is room for all.
            let _ = room.write_all(part);
        }
        let left = room.len();
        hasher.write(whole.get(..whole.len() - left).unwrap_or_default());
    }
}

impl Asks<'_> {
    /// Only what the answer depends on counts: other parameters are ignored, as they are for the answer.
    pub(super) fn understand(&self, board: &Board) -> Understood {
        let (path, query) = match self {
            Self::AgentCheck { sent } => return agent_check(sent, board),
            Self::Http { path, query } => (*path, Query::parse(query, board.catalog()).unwrap_or_default()),
        };
        let of_service = path.starts_with(SERVICES_PREFIX);
        let checks: Vec<_> = if of_service { Vec::new() } else { query.known().collect() };
        let drainable = match of_service {
            true => query.drain.is_some(),
            false if query.checks.is_empty() => depends_on_node(board, board.default_checks()),
            false => depends_on_node(board, checks.iter().copied()),
        };
        let names = query.checks.iter().filter(|_| !of_service).map(|check| match check {
            CheckRef::Known(id) => board.catalog().name(*id),
            CheckRef::Unknown(name) => name,
        });
        let names: Vec<_> = names.map(shown).collect();
        let check = (!names.is_empty()).then(|| format!("check={}", names.join(",")));
        let parameters: Vec<_> =
            check.into_iter().chain(query.drain.map(|code| format!("drain={code}"))).collect();
        let path = if matches!(path, "/" | "*") { OPTIONS.to_owned() } else { shown(path) };
        let text = if parameters.is_empty() { path } else { format!("{path}?{}", parameters.join("&")) };
        Understood { text: cut(text), drainable, checks }
    }
}

/// Understands a question as it is shown; `None` if it would be shown otherwise, or is none for the verdict.
pub(super) fn understand_shown(text: &str, board: &Board) -> Option<Understood> {
    let sent;
    let asks = if let Some(said) = text.strip_prefix(AGENT_CHECK) {
        sent = percent_decode(said.trim_start().as_bytes()).collect::<Vec<u8>>();
        Asks::AgentCheck { sent: &sent }
    } else {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (method, path) = if path == OPTIONS { (Method::OPTIONS, "*") } else { (Method::GET, path) };
        if !Route::of(&method, path).tells_verdict() {
            return None;
        }
        Asks::Http { path, query }
    };
    Some(asks.understand(board)).filter(|understood| understood.text == text)
}

fn agent_check(sent: &[u8], board: &Board) -> Understood {
    let line = sent.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.get(..MOST_OF_AGENT_SEND).unwrap_or(line)).trim().to_owned();
    let text =
        if line.is_empty() { AGENT_CHECK.to_owned() } else { format!("{AGENT_CHECK} {}", shown(&line)) };
    Understood { text, drainable: depends_on_node(board, board.default_checks()), checks: Vec::new() }
}

/// Whether one of the checks is the one that knows of drains.
fn depends_on_node(board: &Board, mut checks: impl Iterator<Item = CheckId>) -> bool {
    let node_ready = board.catalog().find(NODE_READY);
    checks.any(|id| Some(id) == node_ready)
}

/// Text from elsewhere in harmless characters.
fn shown(text: &str) -> String {
    let decoded = percent_decode(text.as_bytes()).decode_utf8_lossy();
    utf8_percent_encode(&decoded, SHOWN).to_string()
}

/// What is cut off still tells one from another.
fn cut(text: String) -> String {
    let Some(kept) = text.get(..MOST_SHOWN).filter(|_| text.len() > MOST_SHOWN) else { return text };
    format!("{kept}*{:x}", fold(&text))
}

/// The same number for the same text, for as long as the text is.
fn fold(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
