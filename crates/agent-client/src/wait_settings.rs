//! The settings of a wait, which `nodegate wait` and the plugin share.

use crate::wait::Waiting;
use nodegate_program::{choice, duration, number};
use nodegate_readiness::probers::{AckOverrides, Goal};
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the number of answers in a row accepts.
pub const TIMES: &str = "takes a number from 1 to 1000";
/// What the number of probers accepts.
pub const PROBERS: &str = "takes a number from 1 to 256";
/// The range of load balancers' intervals.
pub const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
/// The range of `--timeout`.
const TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// What to wait for.
#[derive(Clone, Debug, clap::Args)]
pub struct WaitSettings {
    /// State to wait for: acknowledged, every balancer knows that the node is out; released, and no session
    /// is left; ready, every balancer knows that it is back
    #[arg(long = "for", value_name = "acknowledged|released|ready", default_value = "acknowledged")]
    #[arg(value_parser = choice(&[("acknowledged", Goal::Acknowledged), ("released", Goal::Released), ("ready", Goal::Ready)]))]
    pub goal: Goal,

    /// Answers in a row that take a server out: the largest `fall` of all balancers. If not set, --ack-fall
    /// of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub fall: Option<u32>,

    /// Answers in a row that bring a server back: the largest `rise`. If not set, --ack-rise of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub rise: Option<u32>,

    /// The settings that decide when a prober has acknowledged.
    #[command(flatten)]
    pub acknowledged: AckArgs,
}

/// When all balancers have acknowledged, and how long to wait for it.
#[derive(Clone, Debug, clap::Args)]
pub struct AckArgs {
    /// Least number of regular probers of a node; with fewer, `acknowledged` is unknown. If not set,
    /// --ack-probers of the agent
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = number(1..=256_usize, PROBERS))]
    pub probers: Option<usize>,

    /// Interval at which each balancer probes, if several share an address and don't name themselves. If not
    /// set, --ack-interval of the agent
    #[arg(long, value_name = "DURATION", value_parser = duration(INTERVAL))]
    pub interval: Option<Duration>,

    /// Longest time to wait for balancers; if not set, 2 min, or as long as the slowest one needs
    #[arg(long, value_name = "DURATION", value_parser = duration(TIMEOUT))]
    pub timeout: Option<Duration>,
}

impl WaitSettings {
    /// Starts a wait with these settings.
    pub fn begin(&self) -> Waiting {
        Waiting::new(self.goal, self.overrides(), self.acknowledged.timeout)
    }

    /// Returns the settings of the acknowledgement; the agent has the defaults.
    pub fn overrides(&self) -> AckOverrides {
        self.acknowledged.overrides(self.fall, self.rise)
    }
}

impl AckArgs {
    /// Returns the settings of the acknowledgement; the agent has the defaults.
    pub fn overrides(&self, fall: Option<u32>, rise: Option<u32>) -> AckOverrides {
        AckOverrides { fall, rise, probers: self.probers, interval: self.interval }
    }

    /// Returns the settings of a wait for this goal.
    pub fn wait_for(&self, goal: Goal, fall: Option<u32>, rise: Option<u32>) -> WaitSettings {
        WaitSettings { goal, fall, rise, acknowledged: self.clone() }
    }
}
