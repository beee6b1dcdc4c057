//! The loop that moves servers.

use crate::applier::Tools;
use crate::config_file::ConfigFile;
use crate::desired::Desired;
use crate::health::Loop;
use crate::layout::Layout;
use crate::metrics::Metrics;
use crate::mover::{MoveError, Mover, Round};
use crate::sync::{AUDIT, FIRST_RETRY, Shared};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

/// Runs forever; answers each of `saves` when the states are in their file.
pub(crate) async fn run(shared: Arc<Shared>, mut saves: mpsc::Receiver<oneshot::Sender<()>>) {
    let mut shifter = Shifter {
        mover: new_mover(&shared.setup.tools, shared.metrics.clone()),
        shared: shared.clone(),
        failing: false,
        reloaded_for: None,
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
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        let layout = layouts.borrow_and_update().clone();
        let Some(layout) = layout else {
            // Nothing is known to run yet; if an earlier run of ours does, it has the same backends.
            let guess = Layout { desired: now.clone(), ours: true, ..Layout::default() };
            shifter.mover.save(&now, &guess, asker.is_some()).await;
            continue;
        };
        shifter.shift(&now, &layout, look, asker.is_some()).await;
        if shifter.failing {
            audit.reset_after(FIRST_RETRY);
        }
    }
}

struct Shifter {
    mover: Mover,
    shared: Arc<Shared>,
    failing: bool,
    /// The process that was reloaded because it lacked servers: once is enough.
    reloaded_for: Option<u64>,
}

impl Shifter {
    async fn shift(&mut self, now: &Desired, layout: &Layout, look: bool, save: bool) {
        match self.round(now, layout, look).await {
            Ok(round) => {
                if round.missing > 0 && self.reloaded_for != Some(layout.generation) {
                    tracing::warn!(
                        missing = round.missing,
                        "HAProxy runs another configuration: loading it again"
                    );
                    self.reloaded_for = Some(layout.generation);
                    self.shared.reload.notify_one();
                }
                if std::mem::take(&mut self.failing) {
                    tracing::info!("HAProxy can be told the states of servers again");
                }
                if round.moved > 0 || save {
                    self.mover.save(now, layout, true).await;
                }
            }
            Err(error) => {
                self.shared.metrics.failed("runtime");
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "HAProxy can't be told the states of servers; trying again");
                }
                self.mover.save(now, layout, false).await;
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

/// A mover that knows nothing of HAProxy yet.
pub(crate) fn new_mover(tools: &Tools, metrics: Arc<Metrics>) -> Mover {
    let state_file = tools.state_file.clone().map(ConfigFile::new);
    Mover::new(tools.runtime.clone(), state_file, tools.policy.check.agent_port.is_some(), metrics)
}
