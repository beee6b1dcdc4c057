//! A load balancer in these tests, and the rows of the table: each balancer with one
//! documented health check.

use crate::event::Event;
use crate::nodes::{FRONTEND, Lan, Nodes, SERVICE_PORT};
use crate::{proxies, routing};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

type Says = dyn Fn(&Lan, usize) -> Option<String> + Send + Sync;

/// A running balancer; dropping it ends it.
pub(crate) struct Balancer {
    _programs: Vec<Program>,
    /// Returns the balancer's own status of a node, or `None` if it has no status.
    pub(crate) says: Box<Says>,
    /// Returns the node that gets all traffic, if the balancer sends all traffic to one node.
    pub(crate) holder: fn(&Lan) -> Option<usize>,
}

impl Balancer {
    pub(crate) fn new(
        programs: Vec<Program>,
        says: impl Fn(&Lan, usize) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { _programs: programs, says: Box::new(says), holder: |_| None }
    }
}

/// Where the program of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A Debian package of this system.
    Debian,
    /// The version of HAProxy that `hack/install` fetches: a release, or the newest.
    Haproxy(&'static str),
    /// The program that `hack/install` fetches.
    Pinned(&'static str),
}

/// A balancer with one documented health check.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) way: &'static str,
    /// The file in docs/load-balancers, except for the row without a health check.
    pub(crate) file: &'static str,
    pub(crate) source: Source,
    /// The address that clients connect to.
    pub(crate) service: SocketAddr,
    pub(crate) start: fn(&Row, &Nodes) -> Balancer,
    /// The check interval plus the timeout: an agent that is stopped for this time leaves one probe without
    /// an answer.
    pub(crate) one_question: Duration,
    pub(crate) agent_args: &'static [&'static str],
    /// The name in the picture, if the row is in it.
    pub(crate) pictured: Option<&'static str>,
    /// The events that this balancer cannot handle, each with the reason.
    cannot: [(&'static [Event], &'static str); 2],
}

const HALF_SECOND: Duration = Duration::from_millis(1500);
const ONE_SECOND: Duration = Duration::from_secs(2);

impl Row {
    pub(crate) const fn new(
        name: &'static str,
        way: &'static str,
        file: &'static str,
        start: fn(&Row, &Nodes) -> Balancer,
    ) -> Self {
        Self {
            name,
            way,
            file,
            source: Source::Debian,
            service: FRONTEND,
            start,
            one_question: HALF_SECOND,
            agent_args: &[],
            pictured: None,
            cannot: [(&[], ""); 2],
        }
    }

    const fn every_second(self) -> Self {
        Self { one_question: ONE_SECOND, ..self }
    }

    const fn at(self, ip: IpAddr, port: u16, agent_args: &'static [&'static str]) -> Self {
        Self { service: SocketAddr::new(ip, port), agent_args, ..self }
    }

    const fn that_cannot(self, events: &'static [Event], why: &'static str) -> Self {
        Self { cannot: [self.cannot[1], (events, why)], ..self }
    }

    const fn haproxy(
        version: &'static str,
        name: &'static str,
        way: &'static str,
        file: &'static str,
    ) -> Self {
        Self { source: Source::Haproxy(version), ..Self::new(name, way, file, proxies::haproxy) }
    }

    /// Returns the row of a program that `hack/install` fetches, with this name in the picture.
    const fn pinned(self, program: &'static str, pictured: &'static str) -> Self {
        Self { source: Source::Pinned(program), ..self.pictured(pictured) }
    }

    const fn pictured(self, name: &'static str) -> Self {
        Self { pictured: Some(name), ..self }
    }

    /// Returns the title of the row in the table and in messages.
    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.name, self.way)
    }

    /// Returns true if the program is installed. The run of the whole table fetches the other HAProxy
    /// releases.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.source, Source::Pinned(name) if programs::fetched(name).is_none())
    }

    /// Returns the reason why this row may miss the promise for this event.
    pub(crate) fn reason(&self, event: Event) -> Option<&'static str> {
        self.cannot.iter().find_map(|(events, why)| events.contains(&event).then_some(*why))
    }
}

const GET: &str = "`option httpchk GET /health`";
const OPTIONS: &str = "`option httpchk`";
const NEWEST: &str = "HAProxy 3.4";

/// The reason for a gap of Traefik's TCP services.
const NO_OTHER: &str = "Traefik tries no other node for a TCP service when one refuses; `--on-stale=keep-drain` keeps the drained one out";
const NO_POOL: &str = "Traefik has no pool of last resort for a TCP service";
/// The reason why a moving address or route is worse than a balancer.
const ADDRESS_MOVES: &str = "the address moves, and its open connections break";
const ROUTE_GOES: &str = "the router sends the node's open connections to other nodes, too";
const MOVES: &[Event] =
    &[Event::Cordon, Event::Drain, Event::NotReady, Event::AgentKilled, Event::MassCordon, Event::LostProbe];
const NO_CHECK: &str = "without a health check, requests still reach a node that is leaving";

/// All rows, in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    Row::haproxy("newest", NEWEST, GET, "haproxy/httpchk-get.cfg").pictured("HAProxy"),
    Row::haproxy("newest", NEWEST, OPTIONS, "haproxy/httpchk-options.cfg"),
    Row::haproxy("newest", NEWEST, "`http-check expect`", "haproxy/expect.cfg"),
    Row::haproxy("newest", NEWEST, "`disable-on-404`, `?drain=404`", "haproxy/disable-on-404.cfg"),
    Row::haproxy("newest", NEWEST, "`agent-check`", "haproxy/agent-check.cfg")
        .pictured("HAProxy, agent-check"),
    Row::haproxy("3.2", "HAProxy 3.2", GET, "haproxy/httpchk-get.cfg"),
    Row::haproxy("3.2", "HAProxy 3.2", OPTIONS, "haproxy/httpchk-options.cfg"),
    Row::haproxy("3.0", "HAProxy 3.0", GET, "haproxy/httpchk-get.cfg"),
    Row::haproxy("3.0", "HAProxy 3.0", OPTIONS, "haproxy/httpchk-options.cfg"),
    Row::haproxy("2.6", "HAProxy 2.6", GET, "haproxy/httpchk-get.cfg"),
    Row::haproxy("2.6", "HAProxy 2.6", OPTIONS, "haproxy/httpchk-options.cfg"),
    Row::new("Envoy 1.40", "HTTP", "envoy/nodes.yaml", proxies::envoy)
        .pinned("envoy", "Envoy")
        .every_second(),
    Row::new(
        "nginx 1.22",
        "each request, through a local server",
        "nginx/local-servers.conf",
        proxies::nginx,
    )
    .pictured("nginx"),
    Row::new("Apache httpd 2.4", "`mod_proxy_hcheck`", "apache/nodes.conf", proxies::apache)
        .pictured("Apache httpd"),
    Row::new("Caddy 2.11", "HTTP", "caddy/Caddyfile", proxies::caddy)
        .pinned("caddy", "Caddy")
        // At port 443 it would speak TLS.
        .at(FRONTEND.ip(), 80, &[]),
    Row::new("Traefik 3.7", "HTTP", "traefik/http.yaml", proxies::traefik).pinned("traefik", "Traefik"),
    Row::new("Traefik 3.7", "TCP, port 25002", "traefik/tcp.yaml", proxies::traefik)
        .pinned("traefik", "Traefik, TCP")
        .that_cannot(&[Event::ApiOutage], NO_OTHER)
        .that_cannot(&[Event::MassCordon], NO_POOL),
    Row::new("keepalived 2.2", "VRRP", "keepalived/vrrp.conf", routing::keepalived)
        .pictured("keepalived, VRRP")
        .every_second()
        .at(routing::VIRTUAL, SERVICE_PORT, &[])
        .that_cannot(MOVES, ADDRESS_MOVES),
    Row::new("ExaBGP 4.2, BIRD 2.0", "a route with a metric", "bgp/exabgp.conf", routing::bgp)
        .pictured("BGP")
        .every_second()
        .at(routing::ANYCAST, SERVICE_PORT, routing::BGP_ARGS)
        .that_cannot(MOVES, ROUTE_GOES),
    Row::new("HAProxy 2.6", "no health check", "no-check.cfg", proxies::haproxy)
        .pictured("no check")
        .that_cannot(&[Event::Cordon, Event::Drain, Event::NotReady], NO_CHECK),
];
