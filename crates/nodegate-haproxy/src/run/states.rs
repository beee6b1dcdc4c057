//! The loop that sets server states.

use crate::apply::config_file::ConfigFile;
use crate::apply::layout::Layout;
use crate::apply::mover::{MoveError, Mover, Round};
use crate::apply::tools::Tools;
use crate::plan::desired::Desired;
use crate::run::health::Loop;
use crate::run::metrics::HaproxyMetrics;
use crate::run::shared::{AUDIT, FIRST_RETRY, Shared};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

/// Runs forever. Answers each request of `saves` when the states are in their file.
pub(crate) async fn run(shared: Arc<Shared>, mut saves: mpsc::Receiver<oneshot::Sender<()>>) {
    let mut task = StatesTask {
        mover: new_mover(&shared.setup.tools),
        shared: shared.clone(),
        failing: false,
        lack: Lack::default(),
    };
    let mut desired = shared.desired.subscribe();
    let mut layouts = shared.layout.subscribe();
    let mut audit = interval(AUDIT);
    audit.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        shared.health.beat(Loop::Mover);
        let mut look = false;
        let mut asker = None;
        tokio::select! {
            biased;
            changed = desired.changed() => if changed.is_err() { return },
            changed = layouts.changed() => if changed.is_err() { return },
            asked = saves.recv() => asker = asked,
            _ = audit.tick() => look = true,
        }
        shared.setup.pause.is_over(|| shared.health.beat(Loop::Mover)).await;
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        let layout = layouts.borrow_and_update().clone();
        let Some(layout) = layout else {
            // The running structure is unknown. If HAProxy runs that of an earlier run, it has the same
            // backends.
            let guess = Layout::guess(now.clone(), shared.setup.tools.have_our_sections());
            save(&mut task.mover, &shared.metrics, &now, &guess, asker.is_some()).await;
            continue;
        };
        task.tell(&now, &layout, look, asker.is_some()).await;
        if task.failing {
            audit.reset_after(FIRST_RETRY);
        }
    }
}

struct StatesTask {
    mover: Mover,
    shared: Arc<Shared>,
    failing: bool,
    lack: Lack,
}

/// True while HAProxy lacks servers or backends. If a reload changes nothing about that, it must not lead to
/// the next reload. The file may be another one, or the command may end before the new process is there.
#[derive(Debug, Default)]
struct Lack(bool);

impl Lack {
    /// Returns true if missing servers or backends call for a reload: once, until a process lacks none.
    fn is_news(&mut self, missing: Option<usize>) -> bool {
        let known = self.0;
        self.0 = missing.map_or(known, |missing| missing > 0);
        self.0 && !known
    }
}

impl StatesTask {
    async fn tell(&mut self, now: &Desired, layout: &Layout, look: bool, asked: bool) {
        match self.round(now, layout, look).await {
            Ok(round) => {
                if self.lack.is_news(round.missing) {
                    let (missing, reload) = (round.missing, self.shared.setup.tools.reloader.is_somebody());
                    tracing::warn!(missing, reload, "HAProxy runs another configuration");
                    if reload {
                        self.shared.reload.notify_one();
                    }
                }
                if std::mem::take(&mut self.failing) {
                    tracing::info!("setting server states in HAProxy works again");
                }
                for state in &round.moved {
                    self.shared.metrics.moved(*state);
                }
                if !round.moved.is_empty() || asked {
                    save(&mut self.mover, &self.shared.metrics, now, layout, true).await;
                }
            }
            Err(error) => {
                // Thereby the next round asks HAProxy first, even if there is nothing to set.
                self.mover.forget();
                self.shared.metrics.failed("runtime");
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "can't set server states in HAProxy; retrying");
                }
                save(&mut self.mover, &self.shared.metrics, now, layout, false).await;
            }
        }
    }

    async fn round(&mut self, now: &Desired, layout: &Layout, look: bool) -> Result<Round, MoveError> {
        if look && !self.failing && !self.mover.audit(layout).await? {
            return Ok(Round::default());
        }
        self.mover.round(now, layout).await
    }
}

/// Writes the states for the next process. A failure is logged and counted, and does not stop anything else.
pub(crate) async fn save(
    mover: &mut Mover,
    metrics: &HaproxyMetrics,
    desired: &Desired,
    layout: &Layout,
    fresh: bool,
) {
    if let Err(error) = mover.save(desired, layout, fresh).await {
        metrics.failed("state-file");
        tracing::warn!(%error, "can't save the states of servers for the next reload");
    }
}

/// Creates a [`Mover`] that knows nothing of HAProxy yet.
pub(crate) fn new_mover(tools: &Tools) -> Mover {
    let state_file = tools.state_file.clone().map(ConfigFile::new);
    Mover::new(tools.runtime.clone(), state_file, tools.policy.check.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_asked_for_once_until_nothing_is_missing() {
        let mut lack = Lack::default();
        let learned = [None, Some(2), None, Some(2), Some(1), None, Some(0), None, Some(3), Some(3)];
        let news: Vec<bool> = learned.into_iter().map(|missing| lack.is_news(missing)).collect();
        assert_eq!(news, [false, true, false, false, false, false, false, false, true, false]);
    }
}
