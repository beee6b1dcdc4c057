//! `network`: the host's nameservers and the routers of its default routes answer.

pub(crate) mod dns;
mod gateway;
mod resolv_conf;

use crate::check::{Check, Context, KnownNode, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::HostRoot;
use dns::Questions;
use futures::future::{join, join_all};
use gateway::Routers;
use netlink_packet_route::AddressFamily;
use nodegate_program::choice;
use nodegate_readiness::{Outcome, Reason};
use resolv_conf::Nameserver;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time within which all must answer: longer than the second after which a datagram is sent again, and
/// shorter than the default timeout, so that the reason can name the silent ones.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let settings = &mut context.settings;
    let routers = |of, family| {
        let thread = DedicatedThread::new("network_links");
        Arc::new(Routers { of, family, had_route: AtomicBool::default(), thread })
    };
    Arc::new(Network {
        host: context.host.clone(),
        questions: settings.take("name", Questions::parse).unwrap_or_default(),
        nameservers: settings.take("nameservers", choice(&[("any", true), ("off", false)])).unwrap_or(true),
        gateways: settings.take("gateways", choice(&[("neighbour", true), ("off", false)])).unwrap_or(true),
        time_limit: TIME_LIMIT.min(context.timeout.mul_f64(0.75)),
        file: DedicatedThread::new("network"),
        routers: [routers(AddressFamily::Inet, "IPv4"), routers(AddressFamily::Inet6, "IPv6")],
        complaint: Mutex::default(),
    })
}

struct Network {
    host: HostRoot,
    questions: Questions,
    /// True if one of the nameservers must answer: all nodes use the same, and a dead one costs seconds, not the pool.
    nameservers: bool,
    /// True if the gateways must have a link-layer address. Whether one answers by IP is its own policy.
    gateways: bool,
    time_limit: Duration,
    file: DedicatedThread,
    /// The routers of IPv4 and of IPv6.
    routers: [Arc<Routers>; 2],
    /// The nameservers in the last warning, so that each warning is logged once.
    complaint: Mutex<Vec<Nameserver>>,
}

impl Check for Network {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move {
            let host = self.host.clone();
            let nameservers = match self.file.run(move || resolv_conf::read(&host)).await {
                Ok(nameservers) => nameservers,
                Err(why) => return Outcome::Fail(why),
            };
            let until = Instant::now() + self.time_limit;
            // No client uses the other families to reach the node.
            let counted =
                [IpAddr::is_ipv4, IpAddr::is_ipv6].map(|is_own| node.internal_ips.iter().any(is_own));
            let dns = self.ask_nameservers(nameservers, until);
            let gateways = self.ask_gateways(counted, until);
            let (dns, gateways) = join(dns, gateways).await;
            Reason::join([gateways, dns].into_iter().filter_map(Result::err), "; ").into()
        })
    }
}

impl Network {
    /// Asks all nameservers, also those of a family that the Node does not have: one that answers resolves names.
    async fn ask_nameservers(
        &self,
        found: io::Result<Vec<Nameserver>>,
        until: Instant,
    ) -> Result<(), Reason> {
        if !self.nameservers {
            return Ok(());
        }
        let nameservers = found.map_err(|error| Reason::new("DNS").name("resolv.conf").detail(error))?;
        let asked = nameservers.iter().map(|nameserver| async move {
            let why = match nameserver.address() {
                Ok(address) => self.questions.ask(address, nameserver.over_tcp, until).await.err()?,
                Err(error) => error.to_string(),
            };
            Some((nameserver.clone(), format!("{nameserver} {why}")))
        });
        let silent = join_all(asked).await.into_iter().flatten();
        let (silent, reasons): (Vec<_>, Vec<_>) = silent.unzip();
        let reasons = reasons.join(", ");
        if silent.len() == nameservers.len() {
            return Err(Reason::new("DNS").detail(reasons));
        }
        self.complain(silent, &reasons);
        Ok(())
    }

    /// Logs silent nameservers once for as long as they are silent, although their reasons may change.
    fn complain(&self, silent: Vec<Nameserver>, reasons: &str) {
        let mut said = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != silent && !silent.is_empty() {
            tracing::warn!(
                check = "network",
                reasons,
                "a nameserver does not answer; the check passes because another one does"
            );
        }
        *said = silent;
    }

    /// Checks the default routes of IPv4 and of IPv6, as far as they count. While that is not known, one that works is
    /// enough: the other may be left over.
    async fn ask_gateways(&self, counted: [bool; 2], until: Instant) -> Result<(), Reason> {
        if !self.gateways {
            return Ok(());
        }
        let is_known = counted.contains(&true);
        let counts = counted.map(|counts| counts || !is_known);
        let asked = self.routers.iter().zip(counts).filter(|(_, counts)| *counts);
        let asked = asked.map(|(routers, _)| async move {
            let ask = Arc::clone(routers);
            let asked = routers.thread.run(move || ask.ask(until)).await;
            asked.unwrap_or_else(|why| Err(format!("{} links: {why}", routers.family)))
        });
        let replies = join_all(asked).await;
        let one_works = replies.contains(&Ok(true));
        let silent: Vec<String> = replies.into_iter().filter_map(Result::err).collect();
        let enough = silent.is_empty() || (!is_known && one_works);
        if enough { Ok(()) } else { Err(Reason::new("Gateway").detail(silent.join(", "))) }
    }
}
