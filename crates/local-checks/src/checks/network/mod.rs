//! `network`: the host's nameservers and the routers of its default routes answer.

mod dns;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod resolv_conf;
mod routes;
mod settings;

use crate::check::{Check, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::definition::{Context, Definition};
use crate::host_root::HostRoot;
use crate::netlink::Netlink;
use crate::options::OptionKey;
use crate::timing::Timing;
use dns::DnsQuery;
use futures::future::{join, join_all};
use gateway::Silent;
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use resolv_conf::Nameserver;
use routes::DefaultRoute;
use settings::{Families, Gateways, Nameservers};
use std::fs::File;
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
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum number of routers of one family.
const MAX_NEXT_HOPS: usize = 4;
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
    patience: Duration,
    files: DedicatedThread,
    families: [Family; 2],
    /// The nameservers in the last warning, so that each warning is logged once.
    complaint: Mutex<Vec<Nameserver>>,
}

/// The state of the default routes of IPv4, or of IPv6.
struct Family {
    name: &'static str,
    had_route: AtomicBool,
    /// Reads links from the kernel, which may block forever.
    thread: DedicatedThread,
}

/// The result for the default routes of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// There is no default route; some nodes have none by design.
    None,
    Works,
}

/// The content of the host's files.
struct Files {
    nameservers: io::Result<Vec<Nameserver>>,
    routes: [io::Result<Vec<DefaultRoute>>; 2],
}

impl Check for Network {
    fn run(&self, node: AddressFamilies) -> Run<'_> {
        Box::pin(async move {
            let host = self.host.clone();
            let files = match self.files.run(move || Files::read(&host)).await {
                Ok(files) => files,
                Err(error) => return Outcome::Fail(error.into()),
            };
            let until = Instant::now() + self.patience;
            let counted = self.counted.counted(node);
            let dns = self.ask_nameservers(files.nameservers, counted, until);
            let gateways = self.ask_gateways(files.routes, counted, until);
            let (dns, gateways) = join(dns, gateways).await;
            Reason::join([gateways, dns].into_iter().filter_map(Result::err), "; ").into()
        })
    }
}

impl Network {
    fn new(context: &Context<'_>) -> Self {
        let family = |name| Family {
            name,
            had_route: AtomicBool::default(),
            thread: DedicatedThread::new("network_links"),
        };
        Self {
            host: context.host.clone(),
            question: context.options.get(NAME.name()).unwrap_or_default(),
            nameservers: context.options.get(NAMESERVERS.name()).unwrap_or_default(),
            gateways: context.options.get(GATEWAYS.name()).unwrap_or_default(),
            counted: context.options.get(FAMILIES.name()).unwrap_or_default(),
            patience: PATIENCE.min(context.timeout.mul_f64(0.75)),
            files: DedicatedThread::new("network"),
            families: [family("IPv4"), family("IPv6")],
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
        if nameservers.is_empty() {
            return Err(Reason::new("DNS").detail("no nameserver in resolv.conf"));
        }
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
        let index = |interface: &str| Netlink::open()?.index(interface);
        let address = nameserver.address(index).map_err(|error| error.to_string())?;
        dns::ask(address, &self.question, until).await.map_err(|error| error.to_string())
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
    async fn ask_gateways(
        &self,
        routes: [io::Result<Vec<DefaultRoute>>; 2],
        counted: AddressFamilies,
        until: Instant,
    ) -> Result<(), Reason> {
        if self.gateways == Gateways::Off {
            return Ok(());
        }
        let counts = [counted.ipv4, counted.ipv6].map(|counts| counts || counted.is_empty());
        let families = self.families.iter().zip(routes).zip(counts).filter(|(_, counts)| *counts);
        let asked = families.map(|((family, routes), _)| async move {
            let routes = routes.map_err(|error| format!("{} routes: {error}", family.name))?;
            family.ask(routes, until).await
        });
        let told = join_all(asked).await;
        let one_works = told.contains(&Ok(Way::Works));
        let silent: Vec<String> = told.into_iter().filter_map(Result::err).collect();
        let enough = silent.is_empty() || (counted.is_empty() && one_works);
        if enough { Ok(()) } else { Err(Reason::new("Gateway").detail(silent.join(", "))) }
    }
}

impl Family {
    /// Passes if one of the routers in use exists. With several of the same metric, the kernel or a routing
    /// daemon avoids a dead one.
    async fn ask(&self, routes: Vec<DefaultRoute>, until: Instant) -> Result<Way, String> {
        if routes.is_empty() {
            // A node that had a default route and lost it is cut off.
            let had_route = self.had_route.load(Ordering::Relaxed);
            return if had_route {
                Err(format!("{} default route is gone", self.name))
            } else {
                Ok(Way::None)
            };
        }
        self.had_route.store(true, Ordering::Relaxed);
        let routes: Arc<[DefaultRoute]> = routes.into_iter().take(MAX_NEXT_HOPS).collect();
        loop {
            let asked = Arc::clone(&routes);
            let look = move || asked.iter().map(gateway::look).collect::<Vec<_>>();
            let looked = self.thread.run(look).await;
            let looked = looked.map_err(|why| format!("{} links: {}", self.name, Reason::from(why)))?;
            let silent: Vec<Silent> = looked.into_iter().filter_map(Result::err).collect();
            if silent.len() < routes.len() {
                return Ok(Way::Works);
            }
            let may_still_answer = silent.iter().any(|silent| matches!(silent, Silent::NoNeighbour(_)));
            if !may_still_answer || Instant::now() >= until {
                let each = routes.iter().zip(silent).map(|(route, silent)| format!("{route}: {silent}"));
                return Err(each.collect::<Vec<_>>().join(", "));
            }
            sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }
}

impl Files {
    fn read(host: &HostRoot) -> Self {
        // The agent runs in the host's network, so its own view is the host's.
        let ipv6 = match File::open("/proc/net/ipv6_route") {
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            file => file.and_then(routes::ipv6),
        };
        let ipv4 = File::open("/proc/net/route").and_then(routes::ipv4);
        Self { nameservers: resolv_conf::read(host), routes: [ipv4, ipv6] }
    }
}
