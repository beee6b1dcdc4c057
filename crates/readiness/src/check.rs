//! Checks: their names, their outcomes, and the verdict of several.

use crate::moment::Moment;
use crate::reason::Reason;
use crate::service::ServiceName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The answer to the question: may this node get new traffic now?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Yes: send new traffic.
    Ready,
    /// No: it is healthy, but an operator or a controller is taking it out.
    Draining,
    /// No: it is not healthy.
    NotReady,
}

impl Verdict {
    /// All verdicts, from the best to the worst.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Draining, Self::NotReady];

    /// Returns the word used in metrics, logs and `/status.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::NotReady => "not-ready",
        }
    }

    /// Returns the word shown to people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Draining => "Draining",
            Self::NotReady => "NotReady",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check found nothing wrong.
    Pass,
    /// Healthy, but being taken out, and why.
    Draining(Reason),
    /// Not healthy, and why.
    Fail(Reason),
}

/// Converts `None` to a pass, and a reason to a failure.
impl From<Option<Reason>> for Outcome {
    fn from(reason: Option<Reason>) -> Self {
        reason.map_or(Self::Pass, Self::Fail)
    }
}

impl Outcome {
    /// Returns a failure whose reason is a code alone.
    pub fn fail(code: &'static str) -> Self {
        Self::Fail(Reason::new(code))
    }

    /// Returns the verdict of this outcome alone.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Pass => Verdict::Ready,
            Self::Draining(_) => Verdict::Draining,
            Self::Fail(_) => Verdict::NotReady,
        }
    }

    /// Returns true if the check passed. A draining check did not pass.
    pub fn passed(&self) -> bool {
        *self == Self::Pass
    }

    /// Returns the reason if the check did not pass.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Pass => None,
            Self::Draining(reason) | Self::Fail(reason) => Some(reason),
        }
    }
}

/// One check of an answer, as rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// The name in the request.
    pub name: String,
    /// The outcome of the check.
    pub outcome: Outcome,
    /// True if the check was answered without a cache that can be trusted.
    pub stale: bool,
    /// True if the node's own kubelet overrules a `Ready=Unknown` of the API.
    pub unconfirmed: bool,
    /// True if the Node is cordoned, and passes because too many others are drained.
    pub kept: bool,
    /// The duration of the last background run; zero for checks from memory.
    pub duration: Duration,
    /// The time from which this report must not be given any more; `None` if it does not expire by itself.
    pub expires: Option<Moment>,
}

impl CheckReport {
    /// Returns a check that answers from memory.
    pub fn from_memory(name: &str, outcome: Outcome, stale: bool) -> Self {
        let name = name.to_owned();
        let (unconfirmed, kept, duration, expires) = (false, false, Duration::ZERO, None);
        Self { name, outcome, stale, unconfirmed, kept, duration, expires }
    }
}

/// Returns the verdict of all reports together (logical AND): the worst one wins.
pub fn verdict(reports: &[CheckReport]) -> Verdict {
    reports.iter().map(|report| report.outcome.verdict()).max().unwrap_or(Verdict::Ready)
}

/// A check of the [`Catalog`], by the source of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckId {
    /// The readiness rules over the watched Node.
    NodeReady,
    /// The configured conditions of the watched Node.
    CustomConditions,
    /// The background run with this index.
    Local(usize),
    /// The watched Service with this index.
    Service(usize),
}

/// The name of the check that applies the readiness rules.
pub const NODE_READY: &str = "node_ready";
const CUSTOM_CONDITIONS: &str = "custom_conditions";
/// The name of the local check of kube-proxy. A load balancer that sends a probe request for a Service gets
/// its result, too.
pub const KUBE_PROXY: &str = "kube_proxy";

/// A check that runs in the background on this node.
#[derive(Clone, Debug)]
pub struct LocalCheck {
    /// The name of the check.
    pub name: String,
    /// The maximum duration of one run; a request that starts the check waits no longer than that.
    pub timeout: Duration,
    /// The event that starts the check.
    pub begins: StartMode,
}

/// When a local check starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// The start of the agent; the check never stops. A setting asks for it.
    AtStart,
    /// A request that names the check; it runs for as long as there are such requests.
    #[default]
    OnDemand,
    /// None: the check never runs.
    Never,
}

/// All checks that exist, fixed at start: the two from memory, then the local ones, then those of watched
/// Services.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Catalog {
    local: Vec<LocalCheck>,
    /// The watched Services, each with the name of its check.
    services: Vec<(ServiceName, String)>,
}

impl Catalog {
    /// Returns a catalog with these local checks.
    pub fn new(local: Vec<LocalCheck>) -> Self {
        Self { local, services: Vec::new() }
    }

    /// Adds the checks of watched Services. The index of each Service is its place in this list.
    pub fn with_services(self, services: Vec<ServiceName>) -> Self {
        let with_check = |service: ServiceName| (service.clone(), format!("service:{service}"));
        Self { services: services.into_iter().map(with_check).collect(), ..self }
    }

    /// Sets the local checks that begin at the start, and those that may begin on demand. The others never
    /// run.
    pub fn with_start_modes(mut self, at_start: &[CheckId], on_demand: &[CheckId]) -> Self {
        for (id, check) in self.local_ids().zip(&mut self.local) {
            check.begins = match (at_start.contains(&id), on_demand.contains(&id)) {
                (true, _) => StartMode::AtStart,
                (false, true) => StartMode::OnDemand,
                (false, false) => StartMode::Never,
            };
        }
        self
    }

    /// Returns true if the check runs because of a setting, with or without a request. A check from memory
    /// always does.
    pub fn is_configured(&self, id: CheckId) -> bool {
        self.local(id).is_none_or(|check| check.begins == StartMode::AtStart)
    }

    /// Returns the watched Services, in the order of their indices.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.iter().map(|(service, _)| service)
    }

    /// Returns the index of the watched Service `<namespace>/<name>`.
    pub fn service(&self, name: &str) -> Option<usize> {
        self.services.iter().position(|(_, check)| check.strip_prefix("service:") == Some(name))
    }

    /// Returns the check of this name.
    pub fn find(&self, name: &str) -> Option<CheckId> {
        self.ids().find(|id| self.name(*id) == name)
    }

    /// Returns the name of a check.
    pub fn name(&self, id: CheckId) -> &str {
        match id {
            CheckId::NodeReady => NODE_READY,
            CheckId::CustomConditions => CUSTOM_CONDITIONS,
            CheckId::Local(index) => self.local.get(index).map_or("", |check| &check.name),
            CheckId::Service(index) => self.services.get(index).map_or("", |(_, check)| check),
        }
    }

    /// Returns the local check with this id; `None` for one that answers from memory.
    pub fn local(&self, id: CheckId) -> Option<&LocalCheck> {
        if let CheckId::Local(index) = id { self.local.get(index) } else { None }
    }

    /// Returns the ids of all checks.
    pub fn ids(&self) -> impl Iterator<Item = CheckId> + use<> {
        let services = (0..self.services.len()).map(CheckId::Service);
        [CheckId::NodeReady, CheckId::CustomConditions].into_iter().chain(self.local_ids()).chain(services)
    }

    /// Returns the ids of all local checks.
    pub fn local_ids(&self) -> impl Iterator<Item = CheckId> + use<> {
        (0..self.local.len()).map(CheckId::Local)
    }
}
