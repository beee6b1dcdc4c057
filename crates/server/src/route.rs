//! The closed set of paths that are answered and counted.

use http::Method;

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
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
    Other,
}

impl Route {
    pub(crate) const ALL: [Self; 12] = [
        Self::Health,
        Self::NodeCheck,
        Self::NodeName,
        Self::Services,
        Self::Live,
        Self::Ready,
        Self::Metrics,
        Self::Status,
        Self::Drain,
        Self::Wait,
        Self::Page,
        Self::Other,
    ];

    /// Returns the route of a request. HAProxy sends `OPTIONS /` for a plain `option httpchk`, which asks for
    /// the node's verdict.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        match path {
            "/health" => Self::Health,
            "/" | "*" if method == Method::OPTIONS => Self::Health,
            "/" => Self::Page,
            "/nodecheck" => Self::NodeCheck,
            "/nodename" => Self::NodeName,
            "/livez" => Self::Live,
            "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/status.json" => Self::Status,
            "/drain.json" => Self::Drain,
            "/wait" => Self::Wait,
            _ if path.starts_with(SERVICES_PREFIX) => Self::Services,
            _ => Self::Other,
        }
    }

    /// Returns true if the route answers with the verdict.
    pub(crate) fn tells_verdict(self) -> bool {
        matches!(self, Self::Health | Self::NodeCheck | Self::Services)
    }

    /// Returns true if the route serves people or Prometheus, and shows more than a load balancer needs.
    pub(crate) fn tells_everything(self) -> bool {
        matches!(self, Self::Metrics | Self::Status | Self::Page)
    }

    /// Returns true if the route's answers are big; at most eight of them are sent at a time.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Self::Metrics | Self::Status | Self::Page)
    }

    /// Returns the value of the label `path`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::NodeCheck => "/nodecheck",
            Self::NodeName => "/nodename",
            Self::Services => "/services",
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Metrics => "/metrics",
            Self::Status => "/status.json",
            Self::Drain => "/drain.json",
            Self::Wait => "/wait",
            Self::Page => "/",
            Self::Other => "other",
        }
    }
}

/// The prefix of the paths that answer for one Service.
pub(crate) const SERVICES_PREFIX: &str = "/services/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_the_order_of_their_discriminants() {
        assert!(Route::ALL.iter().enumerate().all(|(n, route)| *route as usize == n));
    }

    #[test]
    fn haproxys_default_check_asks_for_the_node() {
        assert_eq!(Route::of(&Method::OPTIONS, "/"), Route::Health);
        assert_eq!(Route::of(&Method::OPTIONS, "*"), Route::Health);
        assert_eq!(Route::of(&Method::GET, "/"), Route::Page);
        assert_eq!(Route::of(&Method::GET, "*"), Route::Other);
        assert_eq!(Route::of(&Method::GET, "/health/"), Route::Other);
        assert_eq!(Route::of(&Method::GET, "/services/a/b"), Route::Services);
    }
}
