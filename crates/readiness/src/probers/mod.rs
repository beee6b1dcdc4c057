//! The probers, and the judgement whether all of them have acknowledged ([`judge`]). The server records them.

mod acknowledgement;
mod history;
mod pace;
mod record;
mod server_state;
mod wait;

pub use acknowledgement::{
    AckProgress, AckSettings, Judgement, NO_PROBERS, PoolChange, ProberKind, Subject, SubjectKind, TOO_FEW,
    Unknown, judge,
};
pub use history::{GivenAnswer, Habit, ProbeHistory, Standing};
pub use pace::ProbePace;
pub use record::{HaproxyReport, ProberRecord};
pub use server_state::ServerState;
pub use wait::{Goal, Sessions, WaitState};

use std::time::Duration;

/// The longest interval of a balancer's probes: Envoy asks once a minute while it is idle.
pub const MAX_INTERVAL: Duration = Duration::from_secs(90);

/// The number of probes, at intervals of no more than [`MAX_INTERVAL`], that make a prober regular.
pub const REGULAR_AFTER: u32 = 3;
/// The least time between the first and the last of these probes: three requests of a script within a second
/// don't make it regular.
pub const REGULAR_OVER: Duration = Duration::from_secs(10);

/// The time that an agent must listen before it can know its probers.
pub const MIN_LISTENING: Duration = MAX_INTERVAL;
/// The longest time that it listens, if some of them have not shown yet whether they are regular.
pub const MAX_LISTENING: Duration = Duration::from_mins(3);

/// The probe request of an agent-check, which has no path. The text of its `agent-send` may follow.
pub const AGENT_CHECK: &str = "agent-check";

/// The number of failed checks that take a server out: the default of HAProxy, Envoy, keepalived and most
/// others.
pub const FALL: u32 = 3;
/// The number of passed checks that bring it back.
pub const RISE: u32 = 2;
