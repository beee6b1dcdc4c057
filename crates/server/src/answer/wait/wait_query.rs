//! The query of `/wait`.

use crate::route::NOT_WATCHED;
use http::StatusCode;
use nodegate_program::sanitize_short;
use nodegate_readiness::Catalog;
use nodegate_readiness::probers::Goal;
use percent_encoding::percent_decode_str;
use std::time::Duration;

const PARAMETERS: &str = "takes for, timeout, settle, service and format";
/// The maximum length of a value in an error, in characters.
const MAX_SHOWN: usize = 80;

/// The timeout of a request that names none.
const TIMEOUT: u64 = 20;
const MAX_TIMEOUT: u64 = 600;
/// The `settle` of a request about a Service that names none, in seconds: the kubelet starts a hook before the
/// `EndpointSlice` says that the pod terminates.
const SETTLE_OF_SERVICE: u64 = 2;
/// The longest `settle`, in seconds.
const MAX_SETTLE: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitQuery {
    pub(super) goal: Goal,
    pub(super) timeout: Duration,
    /// The time that a node or Service in service has to go out.
    pub(super) settle: Duration,
    /// The index of the Service that the request is about; `None` for the node.
    pub(super) service: Option<usize>,
    /// True if the answer is JSON: `?format=json`.
    pub(super) is_json: bool,
}

impl WaitQuery {
    /// Parses a query. The error is the answer for the client.
    pub(super) fn parse(query: &str, catalog: &Catalog) -> Result<Self, (StatusCode, String)> {
        let (mut goal, mut timeout, mut settle, mut service) = (Goal::Acknowledged, TIMEOUT, None, None);
        let mut is_json = false;
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "for" => {
                    let takes = "acknowledged, released or ready";
                    let known = Goal::ALL.into_iter().find(|goal| goal.as_str() == value);
                    goal = known.ok_or_else(|| wrong(name, value, takes))?;
                }
                "timeout" => timeout = seconds(name, value)?.clamp(1, MAX_TIMEOUT),
                "settle" => settle = Some(seconds(name, value)?.min(MAX_SETTLE)),
                "service" => service = Some(watched(value, catalog)?),
                "format" if value == "json" => is_json = true,
                "format" if value == "text" => {}
                "format" => return Err(wrong(name, value, "text or json")),
                "" => {}
                _ => {
                    let text =
                        format!("{}: no such parameter; {PARAMETERS}\n", sanitize_short(name, MAX_SHOWN));
                    return Err((StatusCode::BAD_REQUEST, text));
                }
            }
        }
        if service.is_some() && goal == Goal::Released {
            return Err(wrong("for", goal.as_str(), "acknowledged or ready with service="));
        }
        let settle = settle.unwrap_or(if service.is_some() { SETTLE_OF_SERVICE } else { 0 });
        let [timeout, settle] = [timeout, settle].map(Duration::from_secs);
        Ok(Self { goal, timeout, settle, service, is_json })
    }
}

/// Returns the index of a watched Service.
fn watched(value: &str, catalog: &Catalog) -> Result<usize, (StatusCode, String)> {
    let name = percent_decode_str(value).decode_utf8_lossy();
    catalog.service(&name).ok_or_else(|| {
        (StatusCode::NOT_FOUND, format!("service={:?}: {NOT_WATCHED}\n", sanitize_short(&name, MAX_SHOWN)))
    })
}

fn seconds(name: &str, value: &str) -> Result<u64, (StatusCode, String)> {
    let number = value.strip_suffix('s').unwrap_or(value);
    number.parse().map_err(|_| wrong(name, value, "whole seconds, e.g. 20"))
}

fn wrong(name: &str, value: &str, takes: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{name}={:?}: takes {takes}\n", sanitize_short(value, MAX_SHOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_has_a_default_and_a_bound() {
        let catalog =
            Catalog::default().with_services(["a/b", "ingress/web"].map(|name| name.parse().unwrap()).into());
        let query = |query| WaitQuery::parse(query, &catalog);
        let parse = |text| {
            query(text).map(|asked| (asked.goal.as_str(), asked.timeout.as_secs(), asked.settle.as_secs()))
        };
        assert_eq!(parse(""), Ok(("acknowledged", 20, 0)));
        assert_eq!(parse("for=released&timeout=55s&settle=2&"), Ok(("released", 55, 2)));
        assert_eq!(parse("timeout=0&for=ready"), Ok(("ready", 1, 0)));
        assert_eq!(parse("timeout=86400&settle=86400"), Ok(("acknowledged", 600, 60)));
        assert_eq!(parse("service=a/b"), Ok(("acknowledged", 20, 2)));
        assert_eq!(parse("service=a/b&settle=0"), Ok(("acknowledged", 20, 0)));
        let of = |text| query(text).map(|asked| asked.service);
        assert_eq!(of("service=ingress%2Fweb"), Ok(Some(1)));
        assert_eq!(of("for=ready"), Ok(None));
        assert_eq!(
            ["format=json", "format=text", ""].map(|text| query(text).unwrap().is_json),
            [true, false, false]
        );
        let (status, text) = of("service=ingress/other").unwrap_err();
        assert!(status == 404 && text.contains("--watch-service"), "{text}");
        for (query, error) in [
            ("for=gone", "for=\"gone\": takes acknowledged, released or ready\n"),
            ("for", "for=\"\": takes acknowledged, released or ready\n"),
            ("timeout=1m", "timeout=\"1m\": takes whole seconds, e.g. 20\n"),
            ("timeout=-1", "timeout=\"-1\": takes whole seconds, e.g. 20\n"),
            ("settle=", "settle=\"\": takes whole seconds, e.g. 20\n"),
            ("format=xml", "format=\"xml\": takes text or json\n"),
            ("for=released&service=a/b", "for=\"released\": takes acknowledged or ready with service=\n"),
            ("fro=ready", "fro: no such parameter; takes for, timeout, settle, service and format\n"),
        ] {
            assert_eq!(parse(query), Err((StatusCode::BAD_REQUEST, error.to_owned())), "{query}");
        }
    }
}
