//! The closed sets of paths and codes that requests are counted by.

use http::{Method, StatusCode};

/// What a request asks for.
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
    Page,
    Other,
}

impl Route {
    pub(crate) const ALL: [Self; 10] = [
        Self::Health,
        Self::NodeCheck,
        Self::NodeName,
        Self::Services,
        Self::Live,
        Self::Ready,
        Self::Metrics,
        Self::Status,
        Self::Page,
        Self::Other,
    ];

    /// The route of a request. `OPTIONS /` is what `HAProxy` sends for a plain `option httpchk`: it means the node.
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
            _ if path.starts_with(SERVICES) => Self::Services,
            _ => Self::Other,
        }
    }

    /// Whether it is for people and for Prometheus, and tells more than a load balancer needs to know.
    pub(crate) fn tells_everything(self) -> bool {
        matches!(self, Self::Metrics | Self::Status | Self::Page)
    }

    /// The value of the label `path`.
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
            Self::Page => "/",
            Self::Other => "other",
        }
    }
}

/// The prefix of the paths that answer for one Service.
pub(crate) const SERVICES: &str = "/services/";

/// A status as counted: those that we give by ourselves, and the class of what a caller chose with `?drain=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Code {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    InternalServerError,
    ServiceUnavailable,
    Other2xx,
    Other3xx,
    Other4xx,
    Other5xx,
}

impl Code {
    pub(crate) const ALL: [Self; 10] = [
        Self::Ok,
        Self::BadRequest,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::InternalServerError,
        Self::ServiceUnavailable,
        Self::Other2xx,
        Self::Other3xx,
        Self::Other4xx,
        Self::Other5xx,
    ];

    pub(crate) fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200 => Self::Ok,
            400 => Self::BadRequest,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            500 => Self::InternalServerError,
            503 => Self::ServiceUnavailable,
            other => match other / 100 {
                2 => Self::Other2xx,
                3 => Self::Other3xx,
                4 => Self::Other4xx,
                _ => Self::Other5xx,
            },
        }
    }

    /// The value of the label `code`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Ok => "200",
            Self::BadRequest => "400",
            Self::NotFound => "404",
            Self::MethodNotAllowed => "405",
            Self::InternalServerError => "500",
            Self::ServiceUnavailable => "503",
            Self::Other2xx => "2xx",
            Self::Other3xx => "3xx",
            Self::Other4xx => "4xx",
            Self::Other5xx => "5xx",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_are_in_the_order_of_their_discriminants() {
        assert!(Route::ALL.iter().enumerate().all(|(n, route)| *route as usize == n));
        assert!(Code::ALL.iter().enumerate().all(|(n, code)| *code as usize == n));
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
