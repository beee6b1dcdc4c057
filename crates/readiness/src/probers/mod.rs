//! The probers, and whether all of them are told.
//!
//! A *prober* is a client that asks for the verdict, identified by its address, its probe request, and the
//! name that it gives itself. It is *told* when it has got the present verdict so often that it must have
//! acted on it: a client that sends its next probe has processed the answer to the previous one. The agent
//! records each prober ([`Asked`]) and shows it ([`ProberRecord`]). The conclusion ([`told`]) and the wait
//! for it ([`Waiting`]) are the same for all readers of the record.

mod asked;
mod drain_status;
mod drain_summary;
mod handover;
mod pace;
mod record;
mod server_state;
mod told;
mod waiting;

pub use asked::{Asked, Given, Habit, Standing};
pub use drain_status::{DrainStatus, Traffic};
pub use drain_summary::{DRAIN_SUMMARY_BYTES, DrainSummary};
pub use handover::{Handover, NoHandover};
pub use pace::ProbePace;
pub use record::{HaproxyReport, ProberRecord};
pub use server_state::{CheckState, ServerState};
pub use told::{Demands, NOBODY, PoolChange, TOO_FEW, Told, ToldSettings, Unknown, WaitingFor, told};
pub use waiting::{Goal, Progress, WaitEnd, Waiting};

use std::time::Duration;

/// Who asks at longer intervals is no balancer: Envoy asks once a minute while it is idle.
pub const MOST_BETWEEN: Duration = Duration::from_secs(90);

/// How often somebody must have asked, at intervals of no more than [`MOST_BETWEEN`], to count as one that goes on asking.
pub const REGULAR_AFTER: u32 = 3;
/// The least time between the first and the last of these questions: three requests of a script within a second are no habit.
pub const REGULAR_WITHIN: Duration = Duration::from_secs(10);

/// For how long an agent has to listen until it can know its probers.
pub const LISTENS_FOR: Duration = MOST_BETWEEN;
/// And at most, if some of them have not yet shown whether they go on asking.
pub const LISTENS_AT_MOST: Duration = Duration::from_mins(3);

/// What an agent-check asks, which has no path; behind it may stand what its `agent-send` says.
pub const AGENT_CHECK: &str = "agent-check";

/// How many failed checks take a server out, as HAProxy, Envoy, keepalived and most others have it by default.
pub const FALL: u32 = 3;
/// How many good ones bring it back.
pub const RISE: u32 = 2;
