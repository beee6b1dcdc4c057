//! Asks the API server when the streams have gone silent, and has a deaf watch replaced.

use crate::backoff::Backoff;
use crate::objects::WatchedNode;
use crate::proof::Proof;
use crate::pulse::Pulse;
use crate::{NodeWatch, client};
use kube::Api;
use kube::api::GetParams;
use nodegate_readiness::beats::BEAT;
use nodegate_readiness::{Moment, Node};
use std::sync::Arc;
use std::time::Duration;

/// A real API server sends a bookmark every 60 s (measured on 1.36); a Node watch silent for longer may be deaf even
/// while the Lease is heard: the server may have lost one stream of the connection that they share.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);
/// A kubelet renews its Lease every 10 s (`leaseDuration` / 4); one that was heard sooner ago than this is no silent one,
/// however soon the cache is to be stale.
const LEASE_OVERDUE: Duration = Duration::from_secs(12);
/// Longest wait for the answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// A change that the question shows may be on its way through the watch: so long it gets to arrive.
const IN_FLIGHT: Duration = Duration::from_millis(300);
/// Streams that went silent together are replaced at once, and then ever more rarely: a dead kubelet is silent too.
const FIRST_REPLACEMENT_GAP: Duration = Duration::from_secs(24);
const LONGEST_REPLACEMENT_GAP: Duration = Duration::from_mins(5);

/// What the question showed.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// We hold the newest there is.
    Current,
    /// There is something newer that the watch has not told us.
    Behind,
}

struct Guard<'a> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    /// Of the default 15 s, 80 % is when a Lease is overdue, and leaves time for two questions.
    ask_after: Duration,
    node_verified: Option<Moment>,
    backoff: Backoff,
    not_before: Moment,
    hurried: bool,
    replacement_gap: Duration,
    next_replacement: Moment,
}

/// Guards the streams, forever.
pub(crate) async fn run(watch: &NodeWatch, proof: Arc<Proof>) {
    let mut guard = Guard {
        watch,
        proof,
        ask_after: watch.stale_after.mul_f64(0.8),
        node_verified: None,
        backoff: Backoff::new(),
        not_before: Moment::default(),
        hurried: false,
        replacement_gap: FIRST_REPLACEMENT_GAP,
        next_replacement: Moment::default(),
    };
    loop {
        let now = guard.proof.now();
        watch.beats.watch(now);
        guard.hurried &= watch.board.freshness(now).stale;
        let pause = match guard.due() {
            Some(due) if due <= now => {
                guard.ask().await;
                continue;
            }
            Some(due) => due.since(now),
            // Whatever opens in the meantime proves itself, so no question is due any sooner than this.
            None => guard.ask_after,
        };
        tokio::select! {
            () = tokio::time::sleep(pause.min(BEAT)) => {}
            () = guard.proof.thawed.notified() => guard.hurry(),
        }
    }
}

impl Guard<'_> {
    /// When the next question is due if nothing is heard until then; `None` while no watch is open, because then each
    /// attempt to open one is the question.
    fn due(&self) -> Option<Moment> {
        if !self.proof.node.is_open() {
            return None;
        }
        let silent = self.watch.board.last_proof()?.plus(self.ask_after);
        let heard = self.proof.node.last_bytes().max(self.node_verified)?;
        Some(silent.min(heard.plus(BOOKMARK_OVERDUE)).max(self.not_before))
    }

    /// A silent stream speaks again: the API server will answer. But every agent hears that at the same time, and each hears
    /// many words: only the first one counts.
    fn hurry(&mut self) {
        if !std::mem::replace(&mut self.hurried, true) {
            self.backoff.reset();
            let soon = self.proof.now().plus(self.backoff.wait());
            self.not_before = self.not_before.min(soon);
        }
    }

    async fn ask(&mut self) {
        let asked_at = self.proof.now();
        let mut finding = self.question().await;
        if matches!(finding, Ok((Finding::Behind, _))) {
            tokio::time::sleep(IN_FLIGHT).await;
            finding = finding.map(|(_, newest)| (self.compare(newest.as_deref()), newest));
        }
        match finding {
            Ok((Finding::Current, _)) => {
                self.backoff.reset();
                self.node_verified = Some(asked_at);
                self.proof.verified(asked_at);
                self.replace_silent_streams(asked_at);
            }
            Ok((Finding::Behind, newest)) => {
                tracing::info!(
                    newest,
                    "the API server knows of a change that the watch did not tell: replacing it"
                );
                self.replace_streams();
                self.wait(asked_at);
            }
            Err(error) => {
                tracing::debug!(error, "the API server did not answer whether the cache is current");
                self.wait(asked_at);
            }
        }
    }

    fn wait(&mut self, now: Moment) {
        self.not_before = now.plus(ASK_TIMEOUT).plus(self.backoff.wait());
    }

    /// One metadata-only GET, answered from the API server's cache, on a connection of its own.
    async fn question(&self) -> Result<(Finding, Option<String>), String> {
        let pulse = Pulse { proof: self.proof.clone(), metrics: self.watch.metrics.clone() };
        let ask = async {
            let client = client::build(pulse).await.map_err(|error| error.to_string())?;
            let api = Api::<WatchedNode>::all(client);
            match api.get_metadata_with(&self.watch.node_name, &GetParams::any()).await {
                Ok(node) => Ok(Some(node.metadata.resource_version.unwrap_or_default())),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        };
        match tokio::time::timeout(ASK_TIMEOUT, ask).await {
            Ok(newest) => newest.map(|newest| (self.compare(newest.as_deref()), newest)),
            Err(_) => Err(format!("no answer within {} s", ASK_TIMEOUT.as_secs())),
        }
    }

    fn compare(&self, newest: Option<&str>) -> Finding {
        match (&self.watch.board.published().state.node, newest) {
            (Node::Present(held), Some(newest)) => compare_versions(&held.resource_version, newest),
            (Node::Absent, None) | (Node::Unknown, _) => Finding::Current,
            (Node::Absent, Some(_)) | (Node::Present(_), None) => Finding::Behind,
        }
    }

    /// The API server answers on a new connection while the open streams are silent: a heartbeat that used to come has
    /// either stopped or can't be heard, and only a new watch can tell which.
    fn replace_silent_streams(&mut self, now: Moment) {
        let lease = &self.proof.lease;
        let overdue = self.ask_after.max(LEASE_OVERDUE);
        let silent = lease.last_bytes().is_some_and(|heard| now.since(heard) >= overdue);
        if !(lease.is_open() && lease.last_event().is_some() && silent) {
            self.replacement_gap = FIRST_REPLACEMENT_GAP;
        } else if now >= self.next_replacement {
            tracing::debug!("the node's Lease is no longer renewed or no longer heard: watching anew");
            self.next_replacement = now.plus(self.replacement_gap);
            self.replacement_gap = (self.replacement_gap * 2).min(LONGEST_REPLACEMENT_GAP);
            self.replace_streams();
        }
    }

    /// What happened to one stream may have happened to all.
    fn replace_streams(&self) {
        for life in self.proof.streams() {
            if life.is_open() {
                life.replace.notify_one();
            }
        }
    }
}

/// Resource versions of one resource may be compared as numbers (KEP-5504); an older one comes from an API server whose
/// cache lags behind ours.
fn compare_versions(held: &str, newest: &str) -> Finding {
    let behind = match (held.parse::<u64>(), newest.parse::<u64>()) {
        (Ok(held), Ok(newest)) => newest > held,
        _ => held != newest,
    };
    if behind { Finding::Behind } else { Finding::Current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_version_is_news() {
        assert_eq!(compare_versions("10", "10"), Finding::Current);
        assert_eq!(compare_versions("10", "9"), Finding::Current);
        assert_eq!(compare_versions("9", "10"), Finding::Behind);
        assert_eq!(compare_versions("a", "b"), Finding::Behind);
    }
}
