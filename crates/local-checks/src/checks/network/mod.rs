//! `network`: the host's nameservers and the routers of its default routes answer.

mod dns;
mod gateway;
mod network_settings;
mod resolv_conf;

use crate::dedicated_thread::DedicatedThread;
use crate::definition::{Context, Definition};
use crate::host_root::HostRoot;
use crate::interface::{Check, KnownNode, Run};
use crate::netlink::Netlink;
use crate::options::OptionKey;
use crate::routes::{DefaultHop, default_hops};
use crate::timing::Timing;
use dns::DnsQuery;
use futures::future::{join, join_all};
use gateway::Silent;
use netlink_packet_route::AddressFamily;
use network_settings::{Families, Gateways, Nameservers};
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use resolv_conf::Nameserver;
use rustix::net::netdevice::name_to_index;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const NAME: OptionKey = OptionKey::new::<DnsQuery>("name");
const NAMESERVERS: OptionKey = OptionKey::new::<Nameservers>("nameservers");
const GATEWAYS: OptionKey = OptionKey::new::<Gateways>("gateways");
const FAMILIES: OptionKey = OptionKey::new::<Families>("families");

/// The time within which all of them must answer, in parallel. It is longer than the second after which a
/// datagram is sent again, and shorter than the default timeout, so that the reason can name the silent ones.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// The interval at which the kernel's neighbour table is read again for a pending answer.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) const DEFINITION: Definition = Definition {
    name: "network",
    options: &[NAME, NAMESERVERS, GATEWAYS, FAMILIES],
    timing: Timing::USUAL,
    new: |context| Arc::new(Network::new(context)),
};

struct Network {
    host: HostRoot,
    question: DnsQuery,
    nameservers: Nameservers,
    gateways: Gateways,
    counted: Families,
    time_limit: Duration,
    file: DedicatedThread,
    families: [Family; 2],
    /// The nameservers in the last warning, so that each warning is logged once.
    complaint: Mutex<Vec<Nameserver>>,
}

/// The state of the default routes of IPv4, or of IPv6.
struct Family {
    of: AddressFamily,
    had_route: AtomicBool,
    /// Reads routes and links from the kernel, which may block forever.
    thread: DedicatedThread,
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
            let counted = self.counted.counted(node.families());
            let dns = self.ask_nameservers(nameservers, counted, until);
            let gateways = self.ask_gateways(counted, until);
            let (dns, gateways) = join(dns, gateways).await;
            Reason::join([gateways, dns].into_iter().filter_map(Result::err), "; ").into()
        })
    }
}

impl Network {
    fn new(context: &Context<'_>) -> Self {
        let family = |of| Family {
            of,
            had_route: AtomicBool::default(),
            thread: DedicatedThread::new("network_links"),
        };
        Self {
            host: context.host.clone(),
            question: context.options.get(NAME).unwrap_or_default(),
            nameservers: context.options.get(NAMESERVERS).unwrap_or_default(),
            gateways: context.options.get(GATEWAYS).unwrap_or_default(),
            counted: context.options.get(FAMILIES).unwrap_or_default(),
            time_limit: TIME_LIMIT.min(context.timeout.mul_f64(0.75)),
            file: DedicatedThread::new("network"),
            families: [family(AddressFamily::Inet), family(AddressFamily::Inet6)],
            complaint: Mutex::default(),
        }
    }

    /// Asks all nameservers, also those of a family that does not count: if one answers, it resolves names,
    /// whatever the Node's addresses are. A silent one of such a family does not fail the check, unless there
    /// is no other.
    async fn ask_nameservers(
        &self,
        found: io::Result<Vec<Nameserver>>,
        counted: AddressFamilies,
        until: Instant,
    ) -> Result<(), Reason> {
        if self.nameservers == Nameservers::Off {
            return Ok(());
        }
        let nameservers = found.map_err(|error| Reason::new("DNS").name("resolv.conf").detail(error))?;
        let asked = nameservers.iter().map(|nameserver| async move {
            let why = self.ask_nameserver(nameserver, until).await.err()?;
            Some((nameserver.clone(), format!("{nameserver} {why}")))
        });
        let mut silent: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let one_answered = silent.len() < nameservers.len();
        let counts = |nameserver: &Nameserver| nameserver.is_within_reach(counted);
        if nameservers.iter().any(counts) {
            silent.retain(|(nameserver, _)| counts(nameserver));
        }
        let (silent, reasons): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
        let reasons = reasons.join(", ");
        if silent.is_empty() || (one_answered && self.nameservers == Nameservers::Any) {
            self.complain(silent, &reasons);
            return Ok(());
        }
        Err(Reason::new("DNS").detail(reasons))
    }

    async fn ask_nameserver(&self, nameserver: &Nameserver, until: Instant) -> Result<(), String> {
        let index = |interface: &str| Ok(name_to_index(Netlink::open()?, interface)?);
        let address = nameserver.address(index).map_err(|error| error.to_string())?;
        dns::ask(address, &self.question, until).await
    }

    /// Logs silent nameservers. A dead one costs every lookup seconds, but the node works. The warning is
    /// logged once for as long as they are silent, although their reasons may change from run to run.
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

    /// Checks the default routes. While the families that count are not known, one working family is enough:
    /// the other's route may be left over.
    async fn ask_gateways(&self, counted: AddressFamilies, until: Instant) -> Result<(), Reason> {
        if self.gateways == Gateways::Off {
            return Ok(());
        }
        let counts = [counted.ipv4, counted.ipv6].map(|counts| counts || counted.is_empty());
        let families = self.families.iter().zip(counts).filter(|(_, counts)| *counts);
        let told = join_all(families.map(|(family, _)| family.ask(until))).await;
        let one_works = told.contains(&Ok(true));
        let silent: Vec<String> = told.into_iter().filter_map(Result::err).collect();
        let enough = silent.is_empty() || (counted.is_empty() && one_works);
        if enough { Ok(()) } else { Err(Reason::new("Gateway").detail(silent.join(", "))) }
    }
}

impl Family {
    /// Returns true if one of the routers in use exists: with several, a routing daemon avoids a dead one. It
    /// returns false without a default route, since some nodes have none by design.
    async fn ask(&self, until: Instant) -> Result<bool, String> {
        let family = self.of;
        let hops = self.on_thread(move || default_hops(family)).await?;
        let hops: Arc<[DefaultHop]> = hops.map_err(|error| format!("{self} routes: {error}"))?.into();
        if hops.is_empty() {
            // A node that had a default route and lost it is cut off.
            let had_route = self.had_route.load(Ordering::Relaxed);
            return if had_route { Err(format!("{self} default route is gone")) } else { Ok(false) };
        }
        self.had_route.store(true, Ordering::Relaxed);
        loop {
            let asked = Arc::clone(&hops);
            let silent = self.on_thread(move || silent(&asked)).await?;
            if silent.len() < hops.len() {
                return Ok(true);
            }
            let may_still_answer = silent.iter().any(|silent| matches!(silent, Silent::NoNeighbour(_)));
            if !may_still_answer || Instant::now() >= until {
                let each = hops.iter().zip(silent).map(|(hop, silent)| format!("{hop}: {silent}"));
                return Err(each.collect::<Vec<_>>().join(", "));
            }
            sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.thread.run(call).await.map_err(|why| format!("{self} links: {why}"))
    }
}

/// Looks at one next hop after the other until one works; returns why those before it do not.
fn silent(hops: &[DefaultHop]) -> Vec<Silent> {
    hops.iter().map_while(|hop| gateway::look(hop).err()).collect()
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of == AddressFamily::Inet { "IPv4" } else { "IPv6" })
    }
}

/// The parser of a nameserver's messages, for its fuzz target.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::dns;
    use hickory_proto::op::Message;

    /// Returns the result of a nameserver's message: `None` if it is no answer to the query, else success or the
    /// error.
    pub fn dns_answer(bytes: &[u8]) -> Option<Result<(), String>> {
        let mut query = Message::from(&dns::DnsQuery::default());
        let message = Message::from_vec(bytes).ok()?;
        // Each query has another number.
        query.metadata.id = message.metadata.id;
        dns::answers(&message, &query).then(|| dns::judge(message).map(drop))
    }
}
