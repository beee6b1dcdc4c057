//! The rows of the table: each load balancer with one documented health check.

use crate::event::Event;
use crate::nodes::{FRONTEND, Lan, Nodes, SERVICE_PORT};
use crate::{proxies, routing};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use std::net::SocketAddr;
use std::sync::LazyLock;
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

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) way: &'static str,
    /// The file in docs/load-balancers, except for the row without a health check.
    pub(crate) file: &'static str,
    /// Where the program comes from: Debian, or `hack/install` by this name.
    pub(crate) source: &'static str,
    pub(crate) pictured: Option<&'static str>,
    /// The events that this balancer cannot handle, each with the reason.
    pub(crate) cannot: &'static str,
    pub(crate) start: fn(&Self, &Nodes) -> Balancer,
    /// The address that clients connect to.
    pub(crate) service: SocketAddr,
    /// The check interval plus the timeout: an agent that is stopped for so long leaves one probe unanswered.
    pub(crate) one_question: Duration,
    pub(crate) agent_args: &'static [&'static str],
}

const HALF_SECOND: Duration = Duration::from_millis(1500);
const ONE_SECOND: Duration = Duration::from_secs(2);

/// All rows, in the order of the table: name | way | file | source | name in the picture | events: reason # events: reason.
/// `-` stands for nothing.
pub(crate) static ROWS: LazyLock<Vec<Row>> =
    LazyLock::new(|| include_str!("rows.txt").lines().map(Row::parse).collect());

impl Row {
    fn parse(line: &'static str) -> Self {
        let cells: Vec<_> = line.split(" | ").collect();
        let [name, way, file, source, pictured, cannot] = cells[..] else { panic!("{line}") };
        let folder = file.split('/').next().unwrap();
        let (start, service, one_question): (fn(&Self, &Nodes) -> Balancer, _, _) = match folder {
            "envoy" => (proxies::envoy, FRONTEND, ONE_SECOND),
            "nginx" => (proxies::nginx, FRONTEND, HALF_SECOND),
            "apache" => (proxies::apache, FRONTEND, HALF_SECOND),
            // At port 443 it would speak TLS.
            "caddy" => (proxies::caddy, (FRONTEND.ip(), 80).into(), HALF_SECOND),
            "traefik" => (proxies::traefik, FRONTEND, HALF_SECOND),
            "keepalived" => (routing::keepalived, (routing::VIRTUAL, SERVICE_PORT).into(), ONE_SECOND),
            "bgp" => (routing::bgp, (routing::ANYCAST, SERVICE_PORT).into(), ONE_SECOND),
            _ => (proxies::haproxy, FRONTEND, HALF_SECOND),
        };
        let agent_args: &[_] = if folder == "bgp" { routing::BGP_ARGS } else { &[] };
        let pictured = Some(pictured).filter(|name| *name != "-");
        Self { name, way, file, source, pictured, cannot, start, service, one_question, agent_args }
    }

    /// Returns the row with this file, whose program is Debian's if Debian has one.
    pub(crate) fn with(file: &str) -> Self {
        let row = *ROWS.iter().find(|row| row.file == file).unwrap();
        if row.source.starts_with("haproxy-") { Self { source: "Debian", ..row } } else { row }
    }

    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.name, self.way)
    }

    /// Returns true if the program is installed. The whole table's run fetches the other HAProxy releases.
    pub(crate) fn is_there(&self) -> bool {
        self.source == "Debian"
            || self.source.starts_with("haproxy-")
            || programs::fetched(self.source).is_some()
    }

    /// Returns the reason why this row may miss the promise for this event.
    pub(crate) fn reason(&self, event: Event) -> Option<&'static str> {
        let name = format!("{event:?}");
        let mut gaps = self.cannot.split(" # ").filter_map(|gap| gap.split_once(": "));
        gaps.find(|(events, _)| events.split(' ').any(|one| one == name)).map(|(_, why)| why)
    }
}
