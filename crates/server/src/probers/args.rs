//! The settings of the probers.

use super::ProberSettings;
use nodegate_agent_client::{INTERVAL, PROBERS, TIMES};
use nodegate_http::Networks;
use nodegate_program::{duration, number};
use nodegate_readiness::probers::{FALL, RISE, ToldSettings};
use std::time::Duration;

/// The clients that count as probers, and when one of them is told.
#[derive(Clone, Debug, clap::Args)]
pub struct ProberArgs {
    /// Clients whose probes count for "told" (nodegate wait): networks and addresses as in --allow-from;
    /// empty means all clients, monitors included
    #[arg(long, env = "NODEGATE_BALANCERS", value_name = "LIST")]
    balancers: Option<Networks>,

    /// Answers in a row that make a load balancer take a server out: the largest `fall` of all balancers. A
    /// prober is told after so many answers, once it has probed again
    #[arg(long, env = "NODEGATE_TOLD_FALL", value_name = "COUNT")]
    #[arg(default_value_t = FALL, value_parser = number(1..=1000_u32, TIMES))]
    told_fall: u32,

    /// Answers in a row that make a load balancer bring a server back: the largest `rise` of all balancers
    #[arg(long, env = "NODEGATE_TOLD_RISE", value_name = "COUNT")]
    #[arg(default_value_t = RISE, value_parser = number(1..=1000_u32, TIMES))]
    told_rise: u32,

    /// Interval at which each load balancer probes: the longest of all balancers. Told then takes (fall + 1)
    /// intervals: a client at a balancer's address can't shorten that, and the wait covers each of several
    /// balancers behind one address. If not set, the agent takes the longest mean of a minute within the last
    /// hour, for each prober by itself
    #[arg(long, env = "NODEGATE_TOLD_INTERVAL", value_name = "DURATION", value_parser = duration(INTERVAL))]
    told_interval: Option<Duration>,

    /// Least number of regular probers; with fewer, `told` is unknown. If not set, one is enough
    #[arg(long, env = "NODEGATE_TOLD_PROBERS", value_name = "COUNT", value_parser = number(1..=256_usize, PROBERS))]
    told_probers: Option<usize>,
}

impl ProberArgs {
    /// Returns the settings of an agent that counts no connections.
    pub fn settings(self) -> ProberSettings {
        let interval_ms = |interval: Duration| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let told = ToldSettings {
            fall: self.told_fall,
            rise: self.told_rise,
            interval_ms: self.told_interval.map(interval_ms),
            probers: self.told_probers,
        };
        ProberSettings { balancers: self.balancers.unwrap_or_default(), told, traffic: None }
    }
}
