//! The settings of the probers.

use super::ProberSettings;
use super::balancers::Balancers;
use nodegate_program::{duration, number};
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{AckSettings, FALL, RISE};
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the number of answers in a row accepts.
const TIMES: &str = "takes a number from 1 to 1000";
/// What the number of probers accepts.
const PROBERS: &str = "takes a number from 1 to 256";
/// The range of load balancers' intervals.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);

/// The clients that count as probers, and when one of them has acknowledged.
#[derive(Clone, Debug, clap::Args)]
pub struct ProberArgs {
    /// Clients whose probes count for "acknowledged" (nodegate wait): networks and addresses as in
    /// --allow-from; empty means all clients, monitors included. With a name before a network, as in
    /// lb=10.0.0.0/26, all its addresses are one balancer. Others can't take their connections
    #[arg(long, env = "NODEGATE_BALANCERS", value_name = "LIST")]
    balancers: Option<Balancers>,

    /// Answers in a row that make a load balancer take a server out: the largest `fall` of all balancers. A
    /// prober has acknowledged after so many answers, once it has probed again
    #[arg(long, env = "NODEGATE_ACK_FALL", value_name = "COUNT")]
    #[arg(default_value_t = FALL, value_parser = number(1..=1000_u32, TIMES))]
    ack_fall: u32,

    /// Answers in a row that make a load balancer bring a server back: the largest `rise` of all balancers
    #[arg(long, env = "NODEGATE_ACK_RISE", value_name = "COUNT")]
    #[arg(default_value_t = RISE, value_parser = number(1..=1000_u32, TIMES))]
    ack_rise: u32,

    /// Interval at which each load balancer probes: the longest of all balancers. The acknowledgement then
    /// takes (fall + 1) intervals: a client at a balancer's address can't shorten that, and the wait covers
    /// each of several balancers behind one address. If not set, the agent takes the longest mean of a minute
    /// within the last hour, for each prober by itself
    #[arg(long, env = "NODEGATE_ACK_INTERVAL", value_name = "DURATION", value_parser = duration(INTERVAL))]
    ack_interval: Option<Duration>,

    /// Least number of regular probers; with fewer, `acknowledged` is unknown. If not set, one is enough
    #[arg(long, env = "NODEGATE_ACK_PROBERS", value_name = "COUNT", value_parser = number(1..=256_usize, PROBERS))]
    ack_probers: Option<usize>,
}

impl ProberArgs {
    /// Returns the settings of an agent that counts no connections.
    pub fn settings(self) -> ProberSettings {
        let acknowledged = AckSettings {
            fall: self.ack_fall,
            rise: self.ack_rise,
            interval_ms: self.ack_interval.map(millis),
            probers: self.ack_probers,
        };
        ProberSettings { balancers: self.balancers.unwrap_or_default(), acknowledged, traffic: None }
    }
}
