//! The changes in one agent's answers.

use crate::answer::{Answer, Verdict};
use crate::changes::Changes;
use crate::screen::Screen;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The current answer of an agent, its start, and its delay after its cause.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) answer: Answer,
    pub(crate) at: Instant,
    pub(crate) latency: Option<Duration>,
}

/// Shows flips, and publishes each new answer as [`Seen`].
pub(crate) struct Flips {
    node: &'static str,
    changes: Changes,
    screen: Screen,
    seen: watch::Sender<Seen>,
}

impl Flips {
    pub(crate) fn new(node: &'static str, changes: Changes, screen: Screen) -> Self {
        let nothing = Seen { answer: Answer::SILENT, at: Instant::now(), latency: None };
        Self { node, changes, screen, seen: watch::Sender::new(nothing) }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Processes the next answer, which was complete at this time.
    pub(crate) fn take(&self, answer: Answer, at: Instant) {
        let before = self.seen.borrow().answer.clone();
        if answer == before {
            return;
        }
        // The answers from a stale cache, and the first answer of an agent, have no cause in the API server.
        let caused = !answer.stale && answer.verdict != Verdict::Silent;
        let stored = if caused { self.changes.shown(self.node) } else { None };
        let stored = stored.filter(|_| before.verdict != Verdict::Silent);
        let latency = stored.map(|stored| at.saturating_duration_since(stored));
        if answer.stale && !before.stale {
            self.screen.stale(self.node, true);
        }
        if before.stale && !answer.stale && answer.verdict != Verdict::Silent {
            self.screen.stale(self.node, false);
        }
        if (answer.verdict, &answer.reason) != (before.verdict, &before.reason) {
            self.screen.flip(self.node, &before, &answer, latency);
        }
        self.seen.send_replace(Seen { answer, at, latency });
    }
}
