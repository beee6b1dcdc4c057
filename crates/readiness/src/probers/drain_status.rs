//! The part of `/status.json` about a drain.

use super::AGENT_CHECK;
use super::asked::Standing;
use super::record::{ProberRecord, millis};
use super::told::{Demands, PoolChange, Told, ToldSettings, WaitingFor, told};
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A count of connections that is older says nothing: whoever counts is stuck.
const COUNTED_WITHIN_MS: u64 = 10_000;

/// How far a drain has come, by the agent's own settings. `null` is for what is not known. Ages are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Whether every regular prober has been told that the node is out.
    pub told: Option<bool>,
    /// Whether, besides, no session is left.
    pub released: Option<bool>,
    /// The way back: whether every regular prober has been told that the node is ready.
    pub told_ready: Option<bool>,
    /// When the node last went out of the pool or came back into it, or when the agent began to listen.
    pub since_ms: u64,
    /// Who has not yet had the present verdict often enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// Why `told`, or on the way back `told_ready`, is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// Why `released` is not known, though `told` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_not_known: Option<String>,
    /// The settings that this was judged by.
    #[serde(default)]
    pub settings: ToldSettings,
    /// Whose questions count, by `--balancers`; absent for everybody's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub balancers: Vec<String>,
    /// For how long all questions have been seen: since the agent began to listen, or since more asked than it can remember.
    pub listening_ms: u64,
    /// How many times somebody asked who could not be remembered.
    #[serde(default)]
    pub overflows: u64,
    /// The connections to `--traffic-port`; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// Connections of clients to this host's own sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The ports that are looked at.
    pub ports: Vec<u16>,
    /// How many established connections they have; absent if that could not be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub established: Option<u64>,
    /// When they were counted; absent if that never worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Why they could not be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Traffic {
    /// How many connections there are now, or why that is not known.
    pub fn sessions(&self) -> Result<u64, String> {
        let ports = self.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        match (self.established, self.age_ms, &self.error) {
            (_, _, Some(error)) => Err(format!("the connections to port {ports} can't be counted: {error}")),
            (Some(established), Some(..=COUNTED_WITHIN_MS), None) => Ok(established),
            _ => Err(format!("the connections to port {ports} have not been counted lately")),
        }
    }
}

impl DrainStatus {
    /// What is seen before it is judged.
    pub fn unjudged(
        since: Duration,
        listening: Duration,
        overflows: u64,
        traffic: Option<Traffic>,
        settings: ToldSettings,
    ) -> Self {
        Self {
            settings,
            since_ms: millis(since),
            listening_ms: millis(listening),
            overflows,
            traffic,
            ..Self::default()
        }
    }
}

/// Whether no session is left, or why that is not known.
pub(super) fn is_free(status: &Status) -> Result<bool, String> {
    match status.drain.as_ref().and_then(|drain| drain.traffic.as_ref()) {
        Some(traffic) => traffic.sessions().map(|sessions| sessions == 0),
        None => {
            Err("the agent has no --traffic-port, and NodePort traffic has no socket on the host".to_owned())
        }
    }
}

impl Status {
    /// The same with what follows from its probers.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.note_switched_off();
        let (since_ms, settings) =
            self.drain.as_ref().map(|drain| (drain.since_ms, drain.settings)).unwrap_or_default();
        let turn = PoolChange::of(self.verdict);
        let known = self.verdict.is_some() && !self.cache.stale;
        for prober in &mut self.probers {
            prober.told =
                (known && prober.is_waited_for()).then(|| prober.has_been_told(turn, since_ms, &settings));
        }
        let [out, ready] =
            [PoolChange::Out, PoolChange::Ready].map(|turn| told(&self, turn, &Demands::default()));
        let free = is_free(&self);
        let Some(drain) = &mut self.drain else { return self };
        drain.told = out.is_yes();
        drain.told_ready = ready.is_yes();
        (drain.released, drain.released_not_known) = match (out.is_yes(), free) {
            (Some(true), Ok(free)) => (Some(free), None),
            (Some(true), Err(why)) => (None, Some(why)),
            (told, _) => (told, None),
        };
        match if turn == PoolChange::Out { out } else { ready } {
            Told::Yes { .. } => {}
            Told::NotYet { waiting_for, .. } => drain.waiting_for = waiting_for,
            Told::Unknown(unknown) => drain.not_known = Some(unknown.to_string()),
        }
        self
    }

    /// An agent-check that falls silent while its balancer goes on asking otherwise has been switched off, as nodegate-haproxy
    /// does with that of a node that it drains: it is gone at once.
    fn note_switched_off(&mut self) {
        let is_agent_check = |prober: &ProberRecord| prober.question.starts_with(AGENT_CHECK);
        let asking: Vec<_> = self
            .probers
            .iter()
            .filter(|prober| {
                prober.standing == Standing::Regular && prober.drainable && !is_agent_check(prober)
            })
            .map(|prober| prober.address)
            .collect();
        for prober in &mut self.probers {
            if prober.standing == Standing::Silent
                && is_agent_check(prober)
                && asking.contains(&prober.address)
            {
                prober.standing = Standing::Gone;
            }
        }
    }

    /// Returns the sessions that are left, as far as somebody counts them: this host's own sockets, else what
    /// each HAProxy says of its server.
    pub fn sessions(&self) -> Option<u64> {
        let traffic = self.drain.as_ref().and_then(|drain| drain.traffic.as_ref());
        if let Some(traffic) = traffic {
            return traffic.sessions().ok();
        }
        let said = self.probers.iter().filter(|prober| prober.is_waited_for());
        said.filter_map(|prober| prober.haproxy.as_ref()?.sessions).reduce(u64::saturating_add)
    }

    /// How many of the probers that are waited for have been told the present verdict, and how many they are.
    pub fn told_of(&self) -> (usize, usize) {
        let waited_for = self.probers.iter().filter(|prober| prober.is_waited_for());
        let told = waited_for.clone().filter(|prober| prober.told == Some(true));
        (told.count(), waited_for.count())
    }
}
