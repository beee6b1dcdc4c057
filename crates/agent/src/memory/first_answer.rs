//! When the ports open: an agent answers when it knows the truth, or when waiting any longer helps nobody.

use super::Past;
use nodegate_node_watch::Startup;
use nodegate_readiness::Memory;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// What the ports are held back for at the most: the startupProbe of the manifests gives up after 30 s.
const LONGEST: Duration = Duration::from_secs(20);
/// How often a predecessor is asked that answers better than this agent could.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_hours(24);

/// How long to wait without the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// `--startup-grace`: if an agent answered here a moment ago, a port that is closed is worse than a guess.
    pub(crate) grace: Duration,
    /// `--stale-after`: if nobody did, no balancer counts on this node, and a guess is worse than a closed port.
    pub(crate) stale_after: Duration,
}

impl Patience {
    /// Where no agent answered.
    fn alone(self) -> Duration {
        self.stale_after.min(LONGEST).max(self.grace)
    }
}

/// Why the ports open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// The Node is known.
    Synced,
    /// No client can be built, and waiting does not bring credentials.
    NoClient,
    /// The API server has not answered in time.
    Unheard,
}

/// Waits for the API server's first answer, or for as long as it should. A predecessor that is fresh answers better
/// than this agent could; while it does, this one waits. Returns what such a predecessor last said, too.
pub(crate) async fn wait(
    past: &impl Past,
    node: &str,
    mut started: watch::Receiver<Startup>,
    patience: Patience,
) -> (Opens, Option<Memory>) {
    let began = Instant::now();
    let mut seen = None;
    if let Some(opens) = heard(&mut started, began + patience.grace).await {
        return (opens, seen);
    }
    let just_crashed = past.answered_recently().await;
    let limit = began + if just_crashed { patience.grace } else { patience.alone() };
    loop {
        let memory = tokio::select! {
            biased;
            Some(opens) = heard(&mut started, began + FOR_EVER) => return (opens, seen),
            memory = ask_predecessor(past, node) => memory,
        };
        match memory {
            Some(memory) if memory.is_fresh() => {
                if seen.is_none() {
                    tracing::info!(
                        "no answer from the API server yet; waiting, because the predecessor still answers"
                    );
                }
                seen = Some(memory);
            }
            // It knows no more than this one.
            Some(_) => break,
            None if seen.is_some() || Instant::now() >= limit => break,
            None => {}
        }
        let next = Instant::now() + ASK_EVERY;
        let next = if seen.is_some() { next } else { next.min(limit) };
        if let Some(opens) = heard(&mut started, next).await {
            return (opens, seen);
        }
    }
    let waited_ms = (Instant::now() - began).as_millis();
    tracing::warn!(waited_ms, "no answer from the API server yet; listening without it");
    (Opens::Unheard, seen)
}

/// Returns what the predecessor says of this node now; `None` if there is none.
async fn ask_predecessor(past: &impl Past, node: &str) -> Option<Memory> {
    let told = past.predecessor().await.ok().flatten().filter(|memory| memory.is_about(node));
    told.map(|memory| memory.written_at(nodegate_clock::wall()))
}

/// What the watches have come to by then; `None` if nothing.
async fn heard(started: &mut watch::Receiver<Startup>, deadline: Instant) -> Option<Opens> {
    match timeout_at(deadline, started.wait_for(|reached| *reached != Startup::Connecting)).await {
        Ok(Ok(reached)) if *reached == Startup::Synced => Some(Opens::Synced),
        Ok(_) => Some(Opens::NoClient),
        Err(_) => None,
    }
}
