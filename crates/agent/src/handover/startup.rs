//! Decides when the ports open: when the Node is known, or when waiting longer does not help. `assembly` waits for it.

use super::{LastKnownSources, Seen};
use nodegate_node_watch::Startup;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The time to wait for the API server soon after an agent answered here. Then a closed port is worse than a
/// guess.
const GRACE: Duration = Duration::from_secs(1);
/// The longest time for which the ports stay closed without a fresh predecessor: the startupProbe of the manifests gives
/// up after 30 s.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// The interval of queries to a predecessor that knows more than this agent.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A time longer than any wait.
const NO_LIMIT: Duration = Duration::from_hours(24);

/// Waits for the API server's first answer, for `stale_after` at most: if no agent answered here recently, no
/// balancer counts on this node, and a guess is worse than a closed port. While a fresh predecessor answers, this
/// agent waits longer, because the predecessor knows more. Returns the last facts of such a predecessor, too.
pub(crate) async fn wait(
    sources: &impl LastKnownSources,
    node: &str,
    mut started: watch::Receiver<Startup>,
    stale_after: Duration,
) -> Seen {
    let began = Instant::now();
    let mut seen = None;
    if is_startup_over(&mut started, began + GRACE).await {
        return seen;
    }
    let recorded = sources.recorded(node).await.ok().flatten();
    let just_crashed = recorded.is_some_and(|recorded| recorded.has_just_answered);
    let limit = began + if just_crashed { GRACE } else { stale_after.min(MAX_WAIT) };
    loop {
        let predecessor = tokio::select! {
            biased;
            true = is_startup_over(&mut started, began + NO_LIMIT) => return seen,
            predecessor = sources.predecessor(node) => predecessor.ok().flatten(),
        };
        match predecessor.map(|before| (before.is_fresh, before.facts)) {
            Some((true, Some(facts))) => {
                if seen.is_none() {
                    tracing::info!(
                        "no answer from the API server yet; waiting, because the predecessor still answers"
                    );
                }
                seen = Some((facts, nodegate_clock::now()));
            }
            // The predecessor knows no more than this agent.
            Some(_) => break,
            None if seen.is_some() || Instant::now() >= limit => break,
            None => {}
        }
        let next = Instant::now() + ASK_EVERY;
        let next = if seen.is_some() { next } else { next.min(limit) };
        if is_startup_over(&mut started, next).await {
            return seen;
        }
    }
    let waited_ms = (Instant::now() - began).as_millis();
    tracing::warn!(waited_ms, "no answer from the API server yet; listening without it");
    seen
}

/// Waits until the deadline; returns true if the Node is known, or if no client can be built, because waiting does not
/// provide credentials.
async fn is_startup_over(started: &mut watch::Receiver<Startup>, deadline: Instant) -> bool {
    let reached = timeout_at(deadline, started.wait_for(|reached| *reached != Startup::Connecting)).await;
    if reached.as_ref().is_ok_and(|reached| reached.as_ref().map_or(true, |now| **now == Startup::NoClient)) {
        tracing::warn!("no Kubernetes client; answering without one and retrying");
    }
    reached.is_ok()
}
