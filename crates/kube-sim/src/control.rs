//! What a test cannot call in another process, as plain HTTP on a port of its own. It has no authentication.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nodegate_kube_sim::Sim;
use tokio::net::TcpListener;

/// Whoever asks is beside us: a request that takes longer was given up.
const SLOW_CLIENT: Duration = Duration::from_mins(1);

/// Binds a port of the loopback interface, and serves until the runtime ends.
pub(crate) async fn open(sim: Sim) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let sim = sim.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let reply = respond(&sim, &request);
                    async move { Ok::<_, Infallible>(reply) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(SLOW_CLIENT);
                // What a client does to its connection is its own affair.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(address)
}

fn respond(sim: &Sim, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let done = match (request.method(), path.as_slice()) {
        (&Method::GET, ["counters"]) => {
            let counters = serde_json::to_vec(&sim.counters().read()).unwrap_or_default();
            return Response::new(Full::new(counters.into()));
        }
        (&Method::POST, ["counters", "reset"]) => {
            sim.counters().reset();
            true
        }
        (&Method::POST, ["nodes", node, "cordon"]) => sim.cordon(node),
        (&Method::POST, ["nodes", node, "uncordon"]) => sim.uncordon(node),
        _ => false,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = if done { StatusCode::OK } else { StatusCode::NOT_FOUND };
    response
}
