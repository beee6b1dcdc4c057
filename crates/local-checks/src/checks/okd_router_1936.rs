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
    new: |context| Arc::new(Http(HttpGet::new(context.url(|| HttpUrl::local(1936, "/healthz/ready"))))),
};
