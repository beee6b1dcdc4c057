//! The settings of a wait, which `nodegate wait` and the plugin share.

use crate::wait::Waiting;
use nodegate_program::{choice, duration, number};
use nodegate_readiness::probers::{Goal, ToldOverrides};
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
    /// State to wait for: told, every balancer knows that the node is out; released, and no session is left;
    /// ready, every balancer knows that it is back
    #[arg(long = "for", value_name = "told|released|ready", default_value = "told")]
    #[arg(value_parser = choice(&[("told", Goal::Told), ("released", Goal::Released), ("ready", Goal::Ready)]))]
    pub goal: Goal,

    /// Answers in a row that take a server out: the largest `fall` of all balancers. If not set, --told-fall
    /// of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub fall: Option<u32>,

    /// Answers in a row that bring a server back: the largest `rise`. If not set, --told-rise of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub rise: Option<u32>,

    /// The settings that decide when a prober is told.
    #[command(flatten)]
    pub told: ToldArgs,
}

/// When all balancers are told, and how long to wait for it.
#[derive(Clone, Debug, clap::Args)]
pub struct ToldArgs {
    /// Least number of regular probers of a node; with fewer, `told` is unknown. If not set, --told-probers of
    /// the agent
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = number(1..=256_usize, PROBERS))]
    pub probers: Option<usize>,

    /// Interval at which each balancer probes, if several share an address and don't name themselves. If not
    /// set, --told-interval of the agent
    #[arg(long, value_name = "DURATION", value_parser = duration(INTERVAL))]
    pub interval: Option<Duration>,

    /// Longest time to wait for balancers; if not set, 2 min, or as long as the slowest one needs
    #[arg(long, value_name = "DURATION", value_parser = duration(TIMEOUT))]
    pub timeout: Option<Duration>,
}

impl WaitSettings {
    /// Starts a wait with these settings.
    pub fn begin(&self) -> Waiting {
        Waiting::new(self.goal, self.overrides(), self.told.timeout)
    }

    /// Returns the settings of told; the agent has the defaults.
    pub fn overrides(&self) -> ToldOverrides {
        self.told.overrides(self.fall, self.rise)
    }
}

impl ToldArgs {
    /// Returns the settings of told; the agent has the defaults.
    pub fn overrides(&self, fall: Option<u32>, rise: Option<u32>) -> ToldOverrides {
        ToldOverrides { fall, rise, probers: self.probers, interval: self.interval }
    }

    /// Returns the settings of a wait for this goal.
    pub fn wait_for(&self, goal: Goal, fall: Option<u32>, rise: Option<u32>) -> WaitSettings {
        WaitSettings { goal, fall, rise, told: self.clone() }
    }
}
