//! The outages of the API server, and how to end each. The simulation has more kinds; these are those that sockets,
//! the kernel and files can show, and some that make the agent work hard.

use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::Cluster;
use std::fs;
use std::time::Duration;

/// The cluster, and the agent's current token.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) token: String,
}

/// An outage, by the operator's name for it.
#[derive(Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) name: &'static str,
    pub(crate) begin: fn(&mut Site),
    /// The repair beyond the end of all faults of the network.
    repair: fn(&Site),
    /// True if the outage has no duration.
    pub(crate) is_a_moment: bool,
}

impl Outage {
    const fn new(name: &'static str, begin: fn(&mut Site)) -> Self {
        Self { name, begin, repair: |_| (), is_a_moment: false }
    }

    const fn repaired(mut self, repair: fn(&Site)) -> Self {
        self.repair = repair;
        self
    }

    const fn moment(mut self) -> Self {
        self.is_a_moment = true;
        self
    }

    /// Returns the time for which a change may be missed; `longest` is the bound of the contract for every outage.
    pub(crate) fn unseen(&self, longest: Duration) -> Duration {
        // The time in which the agent notices and replaces a connection whose packets vanish.
        let replaced = Duration::from_secs(6);
        if self.name == HALF_OPEN { replaced.min(longest) } else { longest }
    }

    /// Ends the outage and all faults.
    pub(crate) fn heal(&self, site: &Site) {
        let sim = &site.cluster.sim;
        sim.faults().clear();
        sim.heal();
        (self.repair)(site);
        assert!(sim.is_up(), "the API server is back");
    }
}

/// Returns the outages whose names contain this word.
pub(crate) fn named(word: &str) -> impl Iterator<Item = Outage> {
    OUTAGES.into_iter().filter(move |outage| outage.name.contains(word))
}

const HALF_OPEN: &str = "packets of open connections dropped";

const OUTAGES: [Outage; 14] = [
    Outage::new("killed", kill).repaired(|site| site.cluster.wait(site.cluster.sim.restart(false)).unwrap()),
    Outage::new("dead, its history compacted", kill)
        .repaired(|site| site.cluster.wait(site.cluster.sim.restart(true)).unwrap()),
    Outage::new("frozen", |site| site.cluster.sim.freeze()),
    Outage::new(HALF_OPEN, |site| site.cluster.sim.half_open()),
    Outage::new("every packet dropped", |site| {
        site.cluster.sim.blackhole_new().unwrap();
        site.cluster.sim.half_open();
    }),
    Outage::new("reset, new connections never served", |site| {
        site.cluster.sim.ignore_new();
        site.cluster.sim.reset_connections();
    }),
    Outage::new("401, token rotated", |site| {
        let new = format!("token-{}", fastrand::u64(..));
        assert!(site.cluster.sim.rotate_token(&site.token, &new));
        site.cluster.sim.reset_connections();
        site.token = new;
    })
    .repaired(write_kubeconfig),
    Outage::new("storm of 429", |site| storm(site, 429)),
    Outage::new("storm of 503", |site| storm(site, 503)),
    Outage::new("watches closed at once", |site| {
        site.cluster.sim.faults().add(Effect::CloseWatch.everywhere());
        site.cluster.sim.close_watches(None);
    }),
    Outage::new("malformed JSON", |site| {
        let events = FaultScope::all().resources(&["nodes"]).verbs(&["watch"]);
        site.cluster.sim.faults().add(Effect::Malformed.on(events));
    }),
    Outage::new("half a second late", |site| {
        site.cluster.sim.faults().add(Effect::Latency { ms: 500 }.everywhere());
        site.cluster.sim.reset_connections();
    }),
    Outage::new("connections reset", |site| site.cluster.sim.reset_connections()).moment(),
    Outage::new("CA rotated", |site| site.cluster.sim.rotate_certificate(true, true).unwrap())
        .repaired(write_kubeconfig),
];

fn kill(site: &mut Site) {
    site.cluster.wait(site.cluster.sim.kill());
}

fn storm(site: &mut Site, code: u16) {
    site.cluster.sim.faults().add(Effect::Status { code, retry_after: 1 }.everywhere());
    site.cluster.sim.reset_connections();
}

fn write_kubeconfig(site: &Site) {
    fs::write(site.cluster.kubeconfig(), site.cluster.sim.kubeconfig_for(&site.token)).unwrap();
}
