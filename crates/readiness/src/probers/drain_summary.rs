//! `/drain.json`: the progress of a drain, for programs that poll it often.

use super::acknowledgement::{AckOverrides, AckSettings, Acknowledgement, PoolChange, acknowledged};
use crate::check::Verdict;
use crate::host_signals::HostSignals;
use crate::status::Status;
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
    pub start_id: Option<String>,
    /// The verdict of the default checks.
    pub verdict: Option<Verdict>,
    /// The time since the last pool change, or since the agent began to listen, in milliseconds.
    pub since_ms: u64,
    /// True if the verdict may be a guess.
    pub stale: bool,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_ms: Option<u64>,
    /// The first awaited probers that have not acknowledged, with their probe requests.
    pub waiting_for: Vec<String>,
    /// The reason why `acknowledged` is not known, or `acknowledged_ready` on the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The same reason as one word for programs, such as `no_probers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known_code: Option<String>,
    /// True if `--balancers` names the clients whose requests count.
    #[serde(default)]
    pub balancers: bool,
    /// What the host says of its own shutdown; absent without `--host-signals`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSignals>,
    /// The settings behind these conclusions.
    pub settings: AckSettings,
}

impl DrainSummary {
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

impl Status {
    /// Returns a summary of the drain.
    pub fn drain_summary(&self) -> DrainSummary {
        let drain = self.drain.clone().unwrap_or_default();
        let (acknowledged_probers, probers) = self.acknowledged_of();
        let waiting_for = drain.waiting_for.iter().take(NAMED);
        let not_known_code = match acknowledged(self, PoolChange::of(self.verdict), &AckOverrides::default())
        {
            Acknowledgement::Unknown(unknown) => Some(unknown.code().to_owned()),
            Acknowledgement::Yes { .. } | Acknowledgement::NotYet { .. } => None,
        };
        DrainSummary {
            node: self.node.clone(),
            uid: self.uid.as_deref().map(|uid| cut(uid, LENGTH)),
            start_id: self.start_id.clone(),
            verdict: self.verdict,
            since_ms: drain.since_ms,
            stale: self.rests_on_stale_cache(),
            acknowledged: drain.acknowledged,
            acknowledged_ready: drain.acknowledged_ready,
            released: drain.released,
            acknowledged_probers,
            probers,
            needs_ms: self.acknowledged_needs_ms(),
            waiting_for: waiting_for
                .map(|one| cut(&format!("{} {}", one.prober, one.request), LENGTH))
                .collect(),
            not_known: drain.not_known.map(|why| cut(&why, REASON)),
            not_known_code,
            balancers: !drain.balancers.is_empty(),
            host: self.host,
            settings: drain.settings,
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
