//! `/drain.json`: the progress of a drain, for programs that poll it often.

use super::told::{Demands, PoolChange, Told, ToldSettings, told};
use crate::check::Verdict;
use crate::status::Status;
use serde::{Deserialize, Serialize};

/// The most that it may take, in bytes.
pub const DRAIN_SUMMARY_BYTES: usize = 2048;

/// How many of those that are waited for are named.
const NAMED: usize = 8;
/// How much is said of each, and of what is not known, in bytes.
const LENGTH: usize = 120;
const REASON: usize = 240;

/// How far a drain has come. `null` is for what is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainSummary {
    /// The Node's name.
    pub node: Option<String>,
    /// The Node's UID.
    pub uid: Option<String>,
    /// What tells this process from the agents before and after it.
    pub start_id: Option<String>,
    /// The verdict of the default checks.
    pub verdict: Option<Verdict>,
    /// When the node last went out of the pool or came back into it, or when the agent began to listen, in milliseconds ago.
    pub since_ms: u64,
    /// Whether the verdict may be a guess.
    pub stale: bool,
    /// Whether every regular prober has been told that the node is out.
    pub told: Option<bool>,
    /// Whether every regular prober has been told that the node is ready.
    pub told_ready: Option<bool>,
    /// Whether, besides, no session is left.
    pub released: Option<bool>,
    /// How many of the probers that are waited for have been told the present verdict.
    pub told_probers: usize,
    /// How many they are.
    pub probers: usize,
    /// The first of those that have not, with what they ask.
    pub waiting_for: Vec<String>,
    /// Why `told`, or on the way back `told_ready`, is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The same as one word for programs, such as `nobody`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known_code: Option<String>,
    /// Whether `--balancers` names whose requests count.
    #[serde(default)]
    pub balancers: bool,
    /// The settings that this was judged by.
    pub settings: ToldSettings,
}

impl DrainSummary {
    /// Returns it as JSON, in less than [`DRAIN_SUMMARY_BYTES`].
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
    /// Returns what it says of a drain, in short.
    pub fn drain_summary(&self) -> DrainSummary {
        let drain = self.drain.clone().unwrap_or_default();
        let (told_probers, probers) = self.told_of();
        let waiting_for = drain.waiting_for.iter().take(NAMED);
        let not_known_code = match told(self, PoolChange::of(self.verdict), &Demands::default()) {
            Told::Unknown(unknown) => Some(unknown.code().to_owned()),
            Told::Yes { .. } | Told::NotYet { .. } => None,
        };
        DrainSummary {
            node: self.node.clone(),
            uid: self.uid.as_deref().map(|uid| cut(uid, LENGTH)),
            start_id: self.start_id.clone(),
            verdict: self.verdict,
            since_ms: drain.since_ms,
            stale: self.cache.stale,
            told: drain.told,
            told_ready: drain.told_ready,
            released: drain.released,
            told_probers,
            probers,
            waiting_for: waiting_for
                .map(|one| cut(&format!("{} {}", one.prober, one.question), LENGTH))
                .collect(),
            not_known: drain.not_known.map(|why| cut(&why, REASON)),
            not_known_code,
            balancers: !drain.balancers.is_empty(),
            settings: drain.settings,
        }
    }
}

/// Cuts what is too long. Nothing is escaped in JSON, so that what it takes there is known: other characters than those of
/// names and sentences come from nobody who means well.
fn cut(text: &str, most: usize) -> String {
    let harmless = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '?' };
    let mut short: String = text.chars().take(most).map(harmless).collect();
    if short.len() < text.len() {
        short.truncate(most - 3);
        short.push_str("...");
    }
    short
}
