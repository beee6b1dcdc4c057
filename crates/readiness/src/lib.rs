//! The pure core of nodegate: facts + check results + time -> verdict and response bytes. The other crates
//! write their input to the [`Board`], and the server reads answers from it. Time arrives as a [`Moment`].

pub mod age;
pub mod answer;
mod bad_value;
pub mod board;
pub mod check;
pub mod conditions;
pub mod cordon;
pub mod damper;
pub mod drain;
pub mod drain_budget;
pub mod facts;
pub mod flips;
pub mod host_signals;
pub mod liveness;
pub mod moment;
pub mod probers;
pub mod query;
pub mod ready_history;
pub mod reason;
pub mod rules;
pub mod selector;
pub mod service;
pub mod state;

pub use age::{Age, Stamp};
pub use answer::{Answer, Reply};
pub use bad_value::BadValue;
pub use board::{Board, Freshness, KnownService, LastFacts, LastKnown, Lookup, Published, ServiceView};
pub use check::{Catalog, CheckId, CheckReport, LocalCheck, Outcome, StartMode, Verdict};
pub use conditions::{ConditionRule, ConditionRules};
pub use cordon::Cordon;
pub use damper::Damper;
pub use drain::{DrainSignals, EXCLUDE_LABEL};
pub use drain_budget::{CordonedNode, CordonsBefore, Kept, MaxDrained, granted};
pub use facts::{AddressFamilies, Condition, ConditionStatus, Node, NodeFacts, Taint, UnreachableTaint};
pub use flips::Flip;
pub use host_signals::HostSignals;
pub use liveness::Liveness;
pub use moment::{AtomicMoment, Moment, Timeline};
pub use query::{CheckRef, Query};
pub use ready_history::PendingNotReady;
pub use reason::Reason;
pub use rules::{OnStale, OnUnknown, Policy};
pub use selector::LabelSelector;
pub use service::{ServiceName, WatchedService};
pub use state::{LocalResult, State};
