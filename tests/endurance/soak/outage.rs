//! The outages of the API server, and how to end each.

use nodegate_kube_sim::{Effect, Fault, FaultScope};
use nodegate_testbed::Cluster;
use std::time::Duration;

/// An outage, by the operator's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    Killed,
    KilledCompacted,
    Frozen,
    HalfOpen,
    Blackholed,
    Ignored,
    Unauthorized,
    Forbidden,
    Storm(u16),
    StormOfSome(u16),
    WatchesClosed,
    Unresponsive,
    Malformed,
    CutEvents,
    Hanging,
    Slow,
    Compacted,
    ConnectionsReset,
    CertificateRotated,
    CaRotated,
}

/// The cluster, and the agent's current token.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) token: String,
}

/// The time in which the agent notices and replaces a connection whose packets vanish.
const REPLACED: Duration = Duration::from_secs(6);

impl Outage {
    pub(crate) const ALL: [Self; 23] = [
        Self::Killed,
        Self::HalfOpen,
        Self::Frozen,
        Self::Blackholed,
        Self::Unauthorized,
        Self::KilledCompacted,
        Self::Forbidden,
        Self::Storm(429),
        Self::WatchesClosed,
        Self::Malformed,
        Self::CutEvents,
        Self::Unresponsive,
        Self::Storm(503),
        Self::StormOfSome(500),
        Self::Ignored,
        Self::Hanging,
        Self::Slow,
        Self::Compacted,
        Self::ConnectionsReset,
        Self::CertificateRotated,
        Self::CaRotated,
        Self::Storm(504),
        Self::StormOfSome(429),
    ];

    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::Killed => "killed",
            Self::KilledCompacted => "killed, history compacted",
            Self::Frozen => "frozen",
            Self::HalfOpen => "packets of open connections dropped",
            Self::Blackholed => "every packet dropped",
            Self::Ignored => "reset, new connections never served",
            Self::Unauthorized => "401, token rotated",
            Self::Forbidden => "403 for nodes",
            Self::Storm(code) => return format!("storm of {code}"),
            Self::StormOfSome(code) => return format!("{code} for two requests of three"),
            Self::WatchesClosed => "watches closed at once",
            Self::Unresponsive => "watches open and unresponsive",
            Self::Malformed => "malformed JSON",
            Self::CutEvents => "streams cut in mid-event",
            Self::Hanging => "requests never answered",
            Self::Slow => "half a second late",
            Self::Compacted => "compacted under open watches",
            Self::ConnectionsReset => "connections reset",
            Self::CertificateRotated => "certificate rotated",
            Self::CaRotated => "CA rotated",
        };
        name.to_owned()
    }

    /// Returns the time for which a change may be missed; `longest` is the bound of the contract for every outage.
    pub(crate) fn unseen(self, longest: Duration) -> Duration {
        if self == Self::HalfOpen { REPLACED.min(longest) } else { longest }
    }

    /// Returns true if the outage has no duration.
    pub(crate) fn is_a_moment(self) -> bool {
        matches!(self, Self::Compacted | Self::ConnectionsReset | Self::CertificateRotated)
    }

    /// Starts the outage.
    pub(crate) fn begin(self, site: &mut Site) {
        let sim = &site.cluster.sim;
        match self {
            Self::Killed | Self::KilledCompacted => site.cluster.wait(sim.kill()),
            Self::Frozen => sim.freeze(),
            Self::HalfOpen => sim.half_open(),
            Self::Blackholed => {
                sim.blackhole_new().unwrap();
                sim.half_open();
            }
            Self::Ignored => {
                sim.ignore_new();
                sim.reset_connections();
            }
            Self::Unauthorized => {
                let new = format!("token-{}", fastrand::u64(..));
                assert!(sim.rotate_token(&site.token, &new));
                sim.reset_connections();
                site.token = new;
            }
            Self::Forbidden => {
                sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["nodes"])));
                sim.close_watches(Some("nodes"));
            }
            Self::Storm(code) => {
                sim.faults().add(Effect::Status { code, retry_after: 1 }.everywhere());
                sim.reset_connections();
            }
            Self::StormOfSome(code) => {
                let storm = Effect::Status { code, retry_after: 1 }.everywhere();
                sim.faults().add(storm.probability(0.67));
                sim.reset_connections();
            }
            Self::WatchesClosed => {
                sim.faults().add(Effect::CloseWatch.everywhere());
                sim.close_watches(None);
            }
            Self::Unresponsive => {
                sim.faults().add(Effect::LoseEvents { bookmarks: false }.everywhere());
            }
            Self::Malformed => {
                sim.faults().add(events(Effect::Malformed));
            }
            Self::CutEvents => {
                sim.faults().add(events(Effect::CutEvent));
            }
            Self::Hanging => {
                sim.faults().add(Effect::Hang.everywhere());
                sim.reset_connections();
            }
            Self::Slow => {
                sim.faults().add(Effect::Latency { ms: 500 }.everywhere());
                sim.reset_connections();
            }
            Self::Compacted => sim.compact(true),
            Self::ConnectionsReset => sim.reset_connections(),
            Self::CertificateRotated => sim.rotate_certificate(false, true).unwrap(),
            Self::CaRotated => sim.rotate_certificate(true, true).unwrap(),
        }
    }

    /// Ends the outage.
    pub(crate) fn heal(self, site: &Site) {
        let sim = &site.cluster.sim;
        sim.faults().clear();
        sim.heal();
        match self {
            Self::Killed => site.cluster.wait(sim.restart(false)).unwrap(),
            Self::KilledCompacted => site.cluster.wait(sim.restart(true)).unwrap(),
            Self::Unauthorized | Self::CaRotated => {
                std::fs::write(site.cluster.kubeconfig(), sim.kubeconfig_for(&site.token)).unwrap();
            }
            _ => {}
        }
        assert!(sim.is_up(), "the API server is back");
    }
}

/// Returns a fault of the Node's events.
fn events(effect: Effect) -> Fault {
    effect.on(FaultScope::all().resources(&["nodes"]).verbs(&["watch"]))
}
