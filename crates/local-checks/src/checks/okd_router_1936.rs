//! `okd_router_1936`: the `OpenShift` router on this node accepts traffic.

use crate::checks::http::Http;
use crate::definition::Definition;
use crate::http_get::HttpGet;
use crate::timing::Timing;
use crate::url::HttpUrl;
use std::sync::Arc;

/// The definition of the check, with the router's `STATS_PORT`. It is on the host because the router runs
/// with host networking behind an external balancer.
pub(crate) const DEFINITION: Definition = Definition {
    name: "okd_router_1936",
    options: &[HttpUrl::OPTION],
    timing: Timing::USUAL,
    new: |context| {
        let set = context.options.get(HttpUrl::OPTION);
        let url = set.unwrap_or_else(|| HttpUrl::local(1936, "/healthz/ready"));
        Arc::new(Http(HttpGet::new(url)))
    },
};
