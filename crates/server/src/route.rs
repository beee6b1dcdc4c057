//! The closed set of paths that are answered and counted.

use http::Method;
use nodegate_readiness::probers::AGENT_CHECK;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    NodeCheck,
    NodeName,
    Services,
    Live,
    Ready,
    Metrics,
    Status,
    Drain,
    Wait,
    Page,
    /// HAProxy's agent-check, on a port of its own.
    AgentCheck,
    Other,
}

impl Route {
    /// All routes, each with its path: the value of the label `path`.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::Health, "/health"),
        (Self::NodeCheck, "/nodecheck"),
        (Self::NodeName, "/nodename"),
        (Self::Services, "/services"),
        (Self::Live, "/livez"),
        (Self::Ready, "/readyz"),
        (Self::Metrics, "/metrics"),
        (Self::Status, "/status.json"),
        (Self::Drain, "/drain.json"),
        (Self::Wait, "/wait"),
        (Self::Page, "/"),
        (Self::AgentCheck, AGENT_CHECK),
        (Self::Other, "other"),
    ];

    /// Returns the route of a request. HAProxy sends `OPTIONS /` for a plain `option httpchk`, which asks for
    /// the node's verdict.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        match path {
            "/" | "*" if method == Method::OPTIONS => Self::Health,
            _ if path.starts_with(SERVICES_PREFIX) => Self::Services,
            _ => Self::ALL.iter().find(|(_, own)| *own == path).map_or(Self::Other, |(route, _)| *route),
        }
    }

    /// Returns the path, or a word for all others.
    pub(crate) fn path(self) -> &'static str {
        Self::ALL.iter().find(|(route, _)| *route == self).map_or("other", |(_, path)| path)
    }
}

/// The prefix of the paths that answer for one Service.
pub(crate) const SERVICES_PREFIX: &str = "/services/";

/// The answer to a request about a Service without facts.
pub(crate) const NOT_WATCHED: &str = "this Service is not watched; name it with --watch-service";
