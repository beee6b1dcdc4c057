//! `network`: the host's nameservers and the routers of its default routes answer.

mod dns;
mod gateway;
mod resolv_conf;

use crate::check::{Check, Context, Definition, KnownNode, Run, Timing};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::HostRoot;
use crate::netlink::Netlink;
use crate::options::Key;
use crate::routes::{DefaultHop, default_hops};
use dns::Questions;
use futures::future::{join, join_all};
use netlink_packet_route::AddressFamily;
use nodegate_program::choice;
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use resolv_conf::Nameserver;
use rustix::net::netdevice::name_to_index;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const NAME: Key<Questions> = Key { name: "name", parse: Questions::parse };
/// True if one of the nameservers must answer: all nodes use the same, and a dead one costs seconds, not the pool.
const NAMESERVERS: Key<bool> =
    Key { name: "nameservers", parse: |text| choice(&[("any", true), ("off", false)])(text) };
/// True if the gateways must have a link-layer address. Whether one answers by IP is its own policy.
const GATEWAYS: Key<bool> =
    Key { name: "gateways", parse: |text| choice(&[("neighbour", true), ("off", false)])(text) };
/// The families that count; `None` for those of the Node's addresses, as no client uses the others to reach it.
const FAMILIES: Key<Option<AddressFamilies>> =
    Key { name: "families", parse: |text| choice(FAMILIES_BY_WORD)(text) };
const FAMILIES_BY_WORD: &[(&str, Option<AddressFamilies>)] = &[
    ("auto", None),
    ("both", Some(AddressFamilies { ipv4: true, ipv6: true })),
    ("ipv4", Some(AddressFamilies { ipv4: true, ipv6: false })),
    ("ipv6", Some(AddressFamilies { ipv4: false, ipv6: true })),
];

/// The time within which all must answer: longer than the second after which a datagram is sent again, and
/// shorter than the default timeout, so that the reason can name the silent ones.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// The interval at which the kernel's neighbour table is read again for a pending answer.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) const DEFINITION: Definition = Definition {
    name: "network",
    options: &[&NAME, &NAMESERVERS, &GATEWAYS, &FAMILIES],
    timing: Timing::USUAL,
    new: |context| Arc::new(Network::new(context)),
};

struct Network {
    host: HostRoot,
    questions: Questions,
    nameservers: bool,
    gateways: bool,
    counted: Option<AddressFamilies>,
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
            let counted = self.counted.unwrap_or_else(|| node.internal_ips.iter().copied().collect());
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
            questions: context.options.get(&NAME).unwrap_or_default(),
            nameservers: context.options.get(&NAMESERVERS).unwrap_or(true),
            gateways: context.options.get(&GATEWAYS).unwrap_or(true),
            counted: context.options.get(&FAMILIES).flatten(),
            time_limit: TIME_LIMIT.min(context.timeout.mul_f64(0.75)),
            file: DedicatedThread::new("network"),
            families: [family(AddressFamily::Inet), family(AddressFamily::Inet6)],
            complaint: Mutex::default(),
        }
    }

    /// Asks all nameservers. A silent one of a family that does not count fails the check only if there is no
    /// other; if it answers, it resolves names, whatever the Node's addresses are.
    async fn ask_nameservers(
        &self,
        found: io::Result<Vec<Nameserver>>,
        counted: AddressFamilies,
        until: Instant,
    ) -> Result<(), Reason> {
        if !self.nameservers {
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
        if silent.is_empty() || one_answered {
            self.complain(silent, &reasons);
            return Ok(());
        }
        Err(Reason::new("DNS").detail(reasons))
    }

    async fn ask_nameserver(&self, nameserver: &Nameserver, until: Instant) -> Result<(), String> {
        let index = |interface: &str| Ok(name_to_index(Netlink::open(None)?.0, interface)?);
        let address = nameserver.address(index).map_err(|error| error.to_string())?;
        self.questions.ask(address, nameserver.over_tcp, until).await
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

    /// Checks the default routes. While the families are not known, one that works is enough: the other's may
    /// be left over.
    async fn ask_gateways(&self, counted: AddressFamilies, until: Instant) -> Result<(), Reason> {
        if !self.gateways {
            return Ok(());
        }
        let counts = [counted.ipv4, counted.ipv6].map(|counts| counts || counted.is_empty());
        let families = self.families.iter().zip(counts).filter(|(_, counts)| *counts);
        let replies = join_all(families.map(|(family, _)| family.ask(until))).await;
        let one_works = replies.contains(&Ok(true));
        let silent: Vec<String> = replies.into_iter().filter_map(Result::err).collect();
        let enough = silent.is_empty() || (counted.is_empty() && one_works);
        if enough { Ok(()) } else { Err(Reason::new("Gateway").detail(silent.join(", "))) }
    }
}

impl Family {
    /// Returns true if one of the routers in use exists: a routing daemon avoids a dead one. Returns false
    /// without a default route, as some nodes have none by design.
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
            // Looks at one next hop after the other until one works.
            let fails =
                |hop: &DefaultHop| Some(gateway::look(hop)).filter(|looked| !matches!(looked, Ok(true)));
            let silent = self.on_thread(move || asked.iter().map_while(fails).collect::<Vec<_>>()).await?;
            if silent.len() < hops.len() {
                return Ok(true);
            }
            if silent.iter().all(Result::is_err) || Instant::now() >= until {
                let each = hops.iter().zip(silent).map(|(hop, looked)| match looked {
                    Err(error) => format!("{hop}: {error}"),
                    Ok(_) if hop.hop.router.is_some_and(|router| router.is_ipv4()) => {
                        format!("{hop}: no answer to ARP")
                    }
                    Ok(_) => format!("{hop}: no answer to NDP"),
                });
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

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of == AddressFamily::Inet { "IPv4" } else { "IPv6" })
    }
}

/// The parser of a nameserver's messages, for its fuzz target.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::dns;
    use hickory_proto::op::{Message, Query};
    use hickory_proto::rr::{Name, RecordType};

    /// Returns the result of a nameserver's message; `None` if it is no answer to the query.
    pub fn dns_answer(bytes: &[u8]) -> Option<Result<(), String>> {
        let mut query = dns::message(&Query::query(Name::root(), RecordType::NS));
        let message = Message::from_vec(bytes).ok()?;
        // Each query has another number.
        query.metadata.id = message.metadata.id;
        dns::answers(&message, &query).then(|| dns::judge(&message))
    }
}
