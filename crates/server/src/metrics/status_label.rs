//! The closed set of statuses that label the counts of requests.

use http::StatusCode;

/// A status as counted: one that the agent chooses itself, or the class of one that a client chose with
/// `?drain=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum StatusLabel {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooManyRequests,
    InternalServerError,
    ServiceUnavailable,
    GatewayTimeout,
    Other2xx,
    Other3xx,
    Other4xx,
    Other5xx,
}

impl StatusLabel {
    pub(super) const ALL: [Self; 12] = [
        Self::Ok,
        Self::BadRequest,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooManyRequests,
        Self::InternalServerError,
        Self::ServiceUnavailable,
        Self::GatewayTimeout,
        Self::Other2xx,
        Self::Other3xx,
        Self::Other4xx,
        Self::Other5xx,
    ];

    pub(super) fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200 => Self::Ok,
            400 => Self::BadRequest,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            429 => Self::TooManyRequests,
            500 => Self::InternalServerError,
            503 => Self::ServiceUnavailable,
            504 => Self::GatewayTimeout,
            other => match other / 100 {
                2 => Self::Other2xx,
                3 => Self::Other3xx,
                4 => Self::Other4xx,
                _ => Self::Other5xx,
            },
        }
    }

    /// Returns the value of the label `code`.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Ok => "200",
            Self::BadRequest => "400",
            Self::NotFound => "404",
            Self::MethodNotAllowed => "405",
            Self::TooManyRequests => "429",
            Self::InternalServerError => "500",
            Self::ServiceUnavailable => "503",
            Self::GatewayTimeout => "504",
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
    fn all_are_in_the_order_of_their_discriminants() {
        assert!(StatusLabel::ALL.iter().enumerate().all(|(n, label)| *label as usize == n));
    }
}
