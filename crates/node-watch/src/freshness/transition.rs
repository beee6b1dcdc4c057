//! The names of all transitions of the state machine. The simulation lists those that it has taken.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The counts of the transitions that were taken.
pub type Transitions = Mutex<BTreeMap<Transition, u64>>;

/// A transition of the state machine. `ValueEnum` lists all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Transition {
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
