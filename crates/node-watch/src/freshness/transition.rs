//! The names of all transitions of the state machine. The simulation lists those that it has taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each name once, whatever is made of it.
macro_rules! transitions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a step of the state machine came to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Transition {
            $($(#[$doc])* $name,)*
        }

        impl Transition {
            /// All that there are.
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
    /// An event of an older state of the Node than the one that is held: it is not believed.
    NodeEventFromThePast,
    /// A renewal of the Lease proved the cache.
    LeaseProved,
    /// A renewal whose date is longer ago than the cache may be old.
    LeaseTooOld,
    /// A renewal from the future.
    LeaseFromTheFuture,
    /// A renewal without a date.
    LeaseWithoutDate,
    /// A renewal from before the clock was set back, or not to be told from one.
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
    /// The last renewal that counts before the Node itself is to be proved.
    LeaseSpokeLast,
    /// A renewal when the Node itself was proved too long ago.
    LeaseSpokeTooLong,
    /// A renewal while the cache was stale: it revives nothing.
    LeaseWhileStale,
    /// A Service's watch without a bookmark is replaced.
    ServiceDeaf,
    /// The proof has become too old.
    WentStale,
    /// There is proof again.
    Revived,
    /// A stream says something while the cache is stale: it is time to ask.
    Thawed,
    /// The question is asked on the connection of the watches.
    Asked,
    /// The question is asked on a new connection.
    AskedOnANewConnection,
    /// No answer came in time.
    AskedInVain,
    /// The answer was that there is none for us.
    Refused,
    /// The answer to a question that was given up.
    AnsweredTooLate,
    /// We hold what etcd holds.
    FoundCurrent,
    /// Etcd holds another state; the watch is given the time to say the same.
    FoundAnother,
    /// It has said the same in that time.
    CaughtUp,
    /// The watch has missed a change, and is replaced.
    FoundBehind,
    /// History went back, or the Node is another one: every mark is forgotten, and the list is made anew.
    FoundRewound,
    /// Another connection than the watch's answered: the watches move there.
    Moved,
    /// A Service's facts are not proved by what proves the Node.
    ServiceLost,
    /// A Service's watch on another connection is moved to the Node's.
    Gathered,
    /// The Lease is not renewed, or not heard: the watches are replaced.
    LeaseSilent,
}

/// How often each of them was taken.
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

    /// Each with how often it was taken.
    pub fn counts(&self) -> impl Iterator<Item = (Transition, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Transition::ALL.iter().copied().zip(counts)
    }
}
