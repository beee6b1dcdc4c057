//! `/drain.json`, the progress of a drain for programs that poll it often, and the JSON of `/wait`, which everybody asks
//! who waits for an acknowledgement.

use crate::drain::ServiceStatus;
use crate::status::Status;
use nodegate_readiness::probers::{AckSettings, Goal, ProberRecord, WaitState};
use nodegate_readiness::{HostSignals, Kept, Verdict};
use serde::{Deserialize, Serialize};

/// The maximum size of the JSON, in bytes.
pub const DRAIN_SUMMARY_BYTES: usize = 2048;

/// The maximum number of awaited probers that are named.
const NAMED: usize = 8;
/// The maximum length of a prober's name or a UID, in bytes; [`REASON`] is that of a reason.
const LENGTH: usize = 120;
const REASON: usize = 240;

/// The progress of a drain. `null` means not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainSummary {
    /// The name of the Node.
    pub node: Option<String>,
    /// The UID of the Node.
    pub uid: Option<String>,
    /// The identifier of this process, which differs from those of earlier and later agents.
    pub start_id: String,
    /// The verdict of the default checks.
    pub verdict: Option<Verdict>,
    /// The time since the latest drain signal or pool change, or since the agent began to listen, in milliseconds.
    pub since_ms: u64,
    /// True if the verdict may be a guess.
    pub stale: bool,
    /// Why the node is in the pool although it is cordoned: too many others are drained.
    pub kept: Option<Kept>,
    /// True if it was, and the cordon takes it out now.
    #[serde(default)]
    pub was_kept: bool,
    /// True if every regular prober has acknowledged that the node is out.
    pub acknowledged: Option<bool>,
    /// True if every regular prober has acknowledged that the node is ready.
    pub acknowledged_ready: Option<bool>,
    /// True if every regular prober has acknowledged that the node is out, and no session is left.
    pub released: Option<bool>,
    /// The number of awaited probers that have acknowledged the present verdict.
    pub acknowledged_probers: usize,
    /// The number of all awaited probers.
    pub probers: usize,
    /// The time that the slowest of them needs to learn that the node is out, in milliseconds.
    pub needs_ms: Option<u64>,
    /// The first awaited probers that have not acknowledged, with their probe requests.
    pub waiting_for: Vec<String>,
    /// The reason why `acknowledged` is not known, or `acknowledged_ready` on the way back.
    pub not_known: Option<String>,
    /// The same reason as one word for programs, such as `no_probers`.
    pub not_known_code: Option<String>,
    /// True if `--balancers` names the clients whose requests count.
    pub balancers: bool,
    /// What the host says of its own shutdown; `null` without `--host-signals`.
    pub host: Option<HostSignals>,
    /// The settings behind these conclusions.
    pub settings: AckSettings,
}

impl DrainSummary {
    /// Returns the summary of a status: of its node, or of one of its Services.
    pub fn of(status: &Status, service: Option<&ServiceStatus>) -> Self {
        let drain = service.map_or(&status.drain, |service| &service.drain);
        let first = drain.waiting_for.iter().take(NAMED);
        let waiting_for = first.map(|one| cut(&format!("{} {}", one.prober, one.request), LENGTH));
        Self {
            node: status.node.clone(),
            uid: status.uid.as_deref().map(|uid| cut(uid, LENGTH)),
            start_id: status.start_id.clone(),
            verdict: service.map_or(status.verdict, |service| Some(service.verdict())),
            since_ms: drain.since_ms,
            stale: service.map_or_else(|| status.is_based_on_stale_cache(), |service| service.stale),
            kept: (status.kept.clone()).map(|kept| Kept {
                first: cut(&kept.first, LENGTH),
                before: Vec::new(),
                ..kept
            }),
            was_kept: status.was_kept,
            acknowledged: drain.acknowledged,
            acknowledged_ready: drain.acknowledged_ready,
            released: drain.released,
            acknowledged_probers: drain.acknowledged_probers,
            probers: drain.probers,
            needs_ms: drain.needs_ms,
            waiting_for: waiting_for.collect(),
            not_known: drain.not_known.as_deref().map(|why| cut(why, REASON)),
            not_known_code: drain.not_known_code.clone(),
            balancers: !drain.balancers.is_empty(),
            host: status.host,
            settings: drain.settings,
        }
    }

    /// Returns the summary as JSON, in less than [`DRAIN_SUMMARY_BYTES`].
    pub fn to_json(mut self) -> Vec<u8> {
        loop {
            let mut json = serde_json::to_vec(&self).unwrap_or_default();
            json.push(b'\n');
            if json.len() < DRAIN_SUMMARY_BYTES || self.waiting_for.pop().is_none() {
                return json;
            }
        }
    }
}

/// Cuts a text to `most` characters. Every character that JSON would escape becomes `?`, so that the size of
/// the JSON is known. Names and sentences contain no such characters.
fn cut(text: &str, most: usize) -> String {
    let harmless = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '?' };
    let mut short: String = text.chars().take(most).map(harmless).collect();
    if short.len() < text.len() {
        short.truncate(most - 3);
        short.push_str("...");
    }
    short
}

/// The answer to `/wait?format=json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReply {
    /// The goal that was asked for.
    pub goal: Goal,
    /// The Service that was asked for, in place of the node.
    pub service: Option<String>,
    /// How the wait stands.
    pub state: WaitState,
    /// The same in words: what is missing and why.
    pub why: String,
    /// The interval of the slowest regular prober, in milliseconds; `null` without one.
    pub interval_ms: Option<u64>,
    /// The progress as in `/drain.json`, of the node or of the Service.
    pub drain: DrainSummary,
    /// The probers that are regular or were so lately, at most [`WaitReply::MAX_PROBERS`].
    pub probers: Vec<ProberRecord>,
}

impl WaitReply {
    /// The most probers in an answer.
    pub const MAX_PROBERS: usize = 64;
}
