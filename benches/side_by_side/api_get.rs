//! A server of the design that people use today: each probe costs a GET of the Node from the API server.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use std::convert::Infallible;
use std::net::TcpListener;

/// Serves forever, with the credentials of `KUBECONFIG`.
pub(crate) async fn serve(
    listener: TcpListener,
    node: &'static str,
) -> Result<(), Box<dyn std::error::Error>> {
    let nodes: Api<Node> = Api::all(Client::try_default().await?);
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let nodes = nodes.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_: Request<Incoming>| answer(nodes.clone(), node));
            // A client that closes its connection is not an error of this server.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(nodes: Api<Node>, name: &str) -> Result<Response<Full<Bytes>>, Infallible> {
    let ready = nodes.get(name).await.is_ok_and(|node| is_ready(&node));
    let (status, body) = if ready { (200, "ready") } else { (503, "not-ready") };
    let body = format!("{{\"status\":\"{body}\"}}");
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap_or_default())
}

fn is_ready(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    ready && !cordoned
}
