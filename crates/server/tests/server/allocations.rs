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
    let (board, app) = Scenario { node: Node::Present(cordoned()), ..Scenario::default() }.build();
    let (raw, now) = ("check=node_ready&drain=404", app.now());
    if let nodegate_readiness::Lookup::Miss(query) = board.lookup(raw, now) {
        board.answer(raw, &query, now);
    }
    let mut headers = HeaderMap::new();
    let known =
        [("/health", 503), ("/health?check=node_ready&drain=404", 404), ("/nodecheck", 503), ("/livez", 200)];
    // At first arc-swap sets up its slots for this thread, and the prober and the counters are new.
    for round in 0..103 {
        for (target, status) in known {
            let answered = answer(&app, target, &mut headers);
            assert!(answered == status || round < 3, "{target}: {answered}");
        }
    }
}
