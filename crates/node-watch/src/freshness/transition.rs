//! The names of all transitions of the state machine. The simulation lists those that it has taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the enum and [`Transition::ALL`] from one list of names.
macro_rules! transitions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A transition of the state machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Transition {
            $($(#[$doc])* $name,)*
        }

        impl Transition {
            /// All transitions of the state machine.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

transitions! {
    /// A consistent list of the Node proved the cache.
    NodeListed,
    /// An event of the Node: it may have been held back, and proves nothing.
    NodeEvent,
    /// An event of the Node while the cache was stale: it revives nothing.
    NodeEventWhileStale,
    /// An event of an older state of the Node than the cached one: it is ignored.
    NodeEventFromThePast,
    /// A renewal of the Lease proved the cache.
    LeaseProved,
    /// A renewal whose date is older than the cache may be.
    LeaseTooOld,
    /// A renewal from the future.
    LeaseFromTheFuture,
    /// A renewal without a date.
    LeaseWithoutDate,
    /// A renewal from before the clock was set back, or one that looks like it.
    LeaseFromBeforeTheClockWasSetBack,
    /// The wall clock was set back.
    ClockSetBack,
    /// The wall clock was set forward, or the machine stood still.
    ClockSetForward,
    /// A renewal while the Node is not watched, or on another connection.
    LeaseWithoutNodeWatch,
    /// A renewal while the Node's own watch has been silent for longer than a bookmark's interval.
    LeaseWithoutBookmarks,
    /// A renewal on a connection on which the Node was not proved: its server may be another one.
    LeaseOnAnotherServer,
    /// The last renewal that counts before the Node itself must be proved.
    LeaseSpokeLast,
    /// A renewal too long after the last proof of the Node itself.
    LeaseSpokeTooLong,
    /// A renewal while the cache was stale: it revives nothing.
    LeaseWhileStale,
    /// A watch without bookmarks is replaced.
    StreamUnresponsive,
    /// The proof has become too old.
    WentStale,
    /// There is proof again.
    Revived,
    /// A check is sent on the connection of the watches.
    CheckSent,
    /// A check is sent on a new connection.
    CheckSentOnNewConnection,
    /// No answer came in time.
    CheckFailed,
    /// The API server refused to answer.
    Refused,
    /// The cache matches etcd.
    FoundCurrent,
    /// The cache has had the answered state since the request, and has another one now.
    FoundOvertaken,
    /// etcd holds another state; the watch gets time to deliver it.
    FoundAnother,
    /// The watch has delivered that state in time.
    CaughtUp,
    /// The watch has missed a change, and is replaced.
    FoundBehind,
    /// History went back, or there is another Node: the cached state is dropped and the watches relist.
    FoundRewound,
    /// Another connection than the watch's answered: the watches move there.
    Moved,
}

/// The count of each transition.
#[derive(Debug)]
pub struct Transitions([AtomicU64; Transition::ALL.len()]);

impl Default for Transitions {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Transition::ALL.len()])
    }
}

impl Transitions {
    pub(crate) fn take(&self, transition: Transition) {
        // The order of declaration is that of the list.
        if let Some(count) = self.0.get(transition as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns each transition with its count.
    pub fn counts(&self) -> impl Iterator<Item = (Transition, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Transition::ALL.iter().copied().zip(counts)
    }
}
