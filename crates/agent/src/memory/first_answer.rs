//! When the ports open: an agent answers when it knows the truth, or when waiting any longer helps nobody.

use super::Sources;
use nodegate_node_watch::Startup;
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

impl Sources {
    /// Waits for the API server's first answer, or for as long as it should. A predecessor that is fresh answers better
    /// than this agent could; while it does, this one waits.
    pub(crate) async fn wait(
        &mut self,
        node: &str,
        mut started: watch::Receiver<Startup>,
        patience: Patience,
    ) -> Opens {
        let began = Instant::now();
        if let Some(opens) = heard(&mut started, began + patience.grace).await {
            return opens;
        }
        let just_crashed = self.answered_recently().await;
        let limit = began + if just_crashed { patience.grace } else { patience.alone() };
        loop {
            let memory = tokio::select! {
                biased;
                Some(opens) = heard(&mut started, began + FOR_EVER) => return opens,
                memory = self.ask_predecessor(node) => memory,
            };
            let had_one = self.seen.is_some();
            match memory {
                Some(memory) if memory.is_fresh() => {
                    if !had_one {
                        tracing::info!(
                            "no answer from the API server yet; waiting, because the predecessor still \
                             answers"
                        );
                    }
                    self.seen = Some(memory);
                }
                // It knows no more than this one.
                Some(_) => break,
                None if had_one || Instant::now() >= limit => break,
                None => {}
            }
            let next = Instant::now() + ASK_EVERY;
            let next = if self.seen.is_some() { next } else { next.min(limit) };
            if let Some(opens) = heard(&mut started, next).await {
                return opens;
            }
        }
        let waited_ms = (Instant::now() - began).as_millis();
        tracing::warn!(waited_ms, "no answer from the API server yet; listening without it");
        Opens::Unheard
    }
}

/// What the watches have come to by then; `None` if nothing.
async fn heard(started: &mut watch::Receiver<Startup>, deadline: Instant) -> Option<Opens> {
    match timeout_at(deadline, started.wait_for(|reached| *reached != Startup::Connecting)).await {
        Ok(Ok(reached)) if *reached == Startup::Synced => Some(Opens::Synced),
        Ok(_) => Some(Opens::NoClient),
        Err(_) => None,
    }
}
