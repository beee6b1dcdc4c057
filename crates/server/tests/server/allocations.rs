//! The hot path allocates nothing.

use crate::scenario::{Scenario, cordoned};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::Empty;
use nodegate_readiness::Node;
use nodegate_server::App;
use std::mem;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Answers one request in the header map of the previous one, as hyper does on a kept connection.
fn answer(app: &Arc<App>, target: &'static str, headers: &mut HeaderMap) -> u16 {
    let mut request = Request::new(Empty::<bytes::Bytes>::new());
    *request.uri_mut() = http::Uri::from_static(target);
    headers.clear();
    headers.insert(header::HOST, HeaderValue::from_static("10.0.0.1:25001"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("test"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    *request.headers_mut() = mem::take(headers);
    // hyper builds the request; its allocations do not count.
    let mut response = None;
    let info = allocation_counter::measure(|| {
        let now = app.now();
        response = app.respond_to(request, now, Ipv4Addr::new(10, 0, 0, 1).into()).now_or_never();
    });
    let mut response = response.expect("answered at once");
    *headers = mem::take(response.headers_mut());
    u16::try_from(info.count_total).unwrap() * 1000 + response.status().as_u16()
}

#[test]
fn a_known_query_is_answered_without_allocating() {
    let world = Scenario { node: Node::Present(cordoned()), ..Scenario::default() }.build();
    let app = Arc::new(world.app);
    let now = app.now();
    let raw = "check=node_ready&drain=404";
    if let nodegate_readiness::Lookup::Miss(query) = world.board.lookup(raw, now) {
        world.board.answer(raw, &query, now);
    }
    let mut headers = HeaderMap::new();
    for _ in 0..3 {
        // The first load makes arc-swap set up its slots for this thread, and the prober and the counters are new.
        answer(&app, "/health", &mut headers);
        answer(&app, "/health?check=node_ready&drain=404", &mut headers);
        answer(&app, "/nodecheck", &mut headers);
        answer(&app, "/livez", &mut headers);
    }
    for _ in 0..100 {
        assert_eq!(answer(&app, "/health", &mut headers), 503);
        assert_eq!(answer(&app, "/health?check=node_ready&drain=404", &mut headers), 404);
        assert_eq!(answer(&app, "/nodecheck", &mut headers), 503);
        assert_eq!(answer(&app, "/livez", &mut headers), 200);
    }
}
