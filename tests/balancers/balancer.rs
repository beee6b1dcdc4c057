//! The interface of a load balancer in these tests, and the rows of the table: each balancer with one
//! documented health check.

use crate::event::Event;
use crate::nodes::Nodes;
use crate::site::Site;
use crate::{apache, bgp, caddy, envoy, haproxy, keepalived, nginx, traefik};
use nodegate_testbed::programs;
use std::net::IpAddr;
use std::time::Duration;

/// A running balancer; dropping it ends it.
pub(crate) trait Balancer: Send + Sync {
    /// Returns the balancer's own status of a node, or `None` if it has no status.
    fn says(&self, site: &Site, node: usize) -> Option<String>;

    /// Returns the node that gets all traffic, if the balancer sends all traffic to one node.
    fn holder(&self, _site: &Site) -> Option<usize> {
        None
    }
}

/// The program of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A program from a Debian package of this system.
    Debian,
    /// A version that `hack/install-haproxy` fetches: a release, or the newest.
    Haproxy(&'static str),
    /// A program that `hack/install-pinned` fetches.
    Wheel(&'static str),
}

/// The network of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Loopback,
    /// Network namespaces; clients connect to this address.
    Lan(IpAddr),
}

/// A balancer with one documented health check.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) way: &'static str,
    /// The file in docs/load-balancers, except for the row without a health check.
    pub(crate) file: &'static str,
    pub(crate) program: Program,
    pub(crate) place: Place,
    pub(crate) start: fn(&Row, &Nodes) -> Box<dyn Balancer>,
    /// The check interval plus the timeout: an agent that is stopped for this time leaves one probe without
    /// an answer.
    pub(crate) one_question: Duration,
    pub(crate) agent_args: &'static [&'static str],
    /// The name in the picture, if the row is in it.
    pub(crate) pictured: Option<&'static str>,
    /// The events that this balancer cannot handle, each with the reason.
    pub(crate) cannot: &'static [(Event, &'static str)],
}

const HALF_SECOND: Duration = Duration::from_millis(1500);
const ONE_SECOND: Duration = Duration::from_secs(2);

impl Row {
    const fn new(
        name: &'static str,
        way: &'static str,
        file: &'static str,
        start: fn(&Row, &Nodes) -> Box<dyn Balancer>,
    ) -> Self {
        Self {
            name,
            way,
            file,
            program: Program::Debian,
            place: Place::Loopback,
            start,
            one_question: HALF_SECOND,
            agent_args: &[],
            pictured: None,
            cannot: &[],
        }
    }

    const fn played_by(mut self, program: Program) -> Self {
        self.program = program;
        self
    }

    const fn pictured(mut self, name: &'static str) -> Self {
        self.pictured = Some(name);
        self
    }

    const fn every_second(mut self) -> Self {
        self.one_question = ONE_SECOND;
        self
    }

    const fn among(mut self, place: Place, agent_args: &'static [&'static str]) -> Self {
        self.place = place;
        self.agent_args = agent_args;
        self
    }

    const fn that_cannot(mut self, cannot: &'static [(Event, &'static str)]) -> Self {
        self.cannot = cannot;
        self
    }

    const fn haproxy(
        version: &'static str,
        name: &'static str,
        way: &'static str,
        file: &'static str,
    ) -> Self {
        Self::new(name, way, file, haproxy::start).played_by(Program::Haproxy(version))
    }

    /// Returns the title of the row in the table and in messages.
    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.name, self.way)
    }

    /// Returns true if the program is installed. The run of the whole table fetches the other HAProxy
    /// releases.
    pub(crate) fn is_there(&self) -> bool {
        match self.program {
            Program::Wheel(name) => programs::fetched(name).is_some(),
            Program::Debian | Program::Haproxy(_) => true,
        }
    }

    pub(crate) fn nodes(&self) -> Nodes {
        let site = || match self.place {
            Place::Loopback => Site::new(),
            Place::Lan(service) => Site::lan(service),
        };
        Nodes::start_with(site, self.agent_args)
    }

    /// Returns the reason why this row may miss the promise for this event.
    pub(crate) fn reason(&self, event: Event) -> Option<&'static str> {
        self.cannot.iter().find_map(|(cannot, why)| (*cannot == event).then_some(*why))
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
    Row::new("Envoy 1.40", "HTTP", "envoy/nodes.yaml", envoy::start)
        .pictured("Envoy")
        .played_by(Program::Wheel("envoy"))
        .every_second(),
    Row::new("nginx 1.22", "each request, through a local server", "nginx/local-servers.conf", nginx::start)
        .pictured("nginx"),
    Row::new("Apache httpd 2.4", "`mod_proxy_hcheck`", "apache/nodes.conf", apache::start)
        .pictured("Apache httpd"),
    Row::new("Caddy 2.11", "HTTP", "caddy/Caddyfile", caddy::start)
        .pictured("Caddy")
        .played_by(Program::Wheel("caddy")),
    Row::new("Traefik 3.7", "HTTP", "traefik/http.yaml", traefik::start)
        .pictured("Traefik")
        .played_by(Program::Wheel("traefik")),
    Row::new("Traefik 3.7", "TCP, port 25002", "traefik/tcp.yaml", traefik::start)
        .pictured("Traefik, TCP")
        .played_by(Program::Wheel("traefik"))
        .that_cannot(&[(Event::ApiOutage, NO_OTHER), (Event::MassCordon, NO_POOL)]),
    Row::new("keepalived 2.2", "VRRP", "keepalived/vrrp.conf", keepalived::start)
        .pictured("keepalived, VRRP")
        .every_second()
        .among(Place::Lan(keepalived::ADDRESS), &[])
        .that_cannot(&[
            (Event::Cordon, ADDRESS_MOVES),
            (Event::Drain, ADDRESS_MOVES),
            (Event::NotReady, ADDRESS_MOVES),
            (Event::AgentKilled, ADDRESS_MOVES),
            (Event::MassCordon, ADDRESS_MOVES),
            (Event::LostProbe, ADDRESS_MOVES),
        ]),
    Row::new("ExaBGP 4.2, BIRD 2.0", "a route with a metric", "bgp/exabgp.conf", bgp::start)
        .pictured("BGP")
        .every_second()
        .among(Place::Lan(bgp::ADDRESS), bgp::AGENT_ARGS)
        .that_cannot(&[
            (Event::Cordon, ROUTE_GOES),
            (Event::Drain, ROUTE_GOES),
            (Event::NotReady, ROUTE_GOES),
            (Event::AgentKilled, ROUTE_GOES),
            (Event::MassCordon, ROUTE_GOES),
            (Event::LostProbe, ROUTE_GOES),
        ]),
    Row::new("HAProxy 2.6", "no health check", "no-check.cfg", haproxy::start_unasking)
        .pictured("no check")
        .that_cannot(&[(Event::Cordon, NO_CHECK), (Event::Drain, NO_CHECK), (Event::NotReady, NO_CHECK)]),
];
