//! Plays an hour behind a proxy that lets no watch work. `world.rs` calls it.

use crate::bounds::{FaultBounds, GRACE, NODES_LOST};
use crate::trace::note;
use crate::world::RunningWorld;
use nodegate_kube_sim::{Effect, FaultScope};
use std::time::Duration;

/// The time until the agent lists without watches, and rarely tries one.
const STEADY: Duration = Duration::from_mins(20);
/// The interval at which the Node changes: that of a kubelet's reports.
const REPORTS: Duration = Duration::from_mins(5);
/// The limit of requests in an hour: without a watch, Leases spare none.
const MOST: u64 = 299;

impl RunningWorld {
    /// Lets an hour pass in which no watch works: changes are seen in time, the cache stays fresh, and it is cheap.
    pub(crate) async fn hour_without_watches(&mut self) -> Result<(), String> {
        let effect = match self.random.u32(..3) {
            // They are cut off.
            0 => Effect::CloseWatch,
            // Heads of answers are buffered.
            1 => Effect::Hang,
            // Only their events are.
            _ => Effect::LoseEvents { bookmarks: false },
        };
        note!(self.trace, "HOUR WITHOUT WATCHES: {effect:?}");
        self.cluster.sim.close_watches(None);
        self.cluster.sim.faults().add(effect.on(FaultScope::all().verbs(&["watch"])));
        self.bounds = FaultBounds { unseen: NODES_LOST + GRACE, ..FaultBounds::FAIR };
        self.pass(NODES_LOST).await?;
        let stale_after = nodegate_readiness::Policy::default().stale_after;
        self.bounds = FaultBounds { unseen: stale_after + GRACE, ..FaultBounds::FAIR };
        self.event_every = REPORTS;
        self.pass(STEADY).await?;
        self.pass_with(Duration::from_hours(1), MOST, "without watches").await
    }
}
