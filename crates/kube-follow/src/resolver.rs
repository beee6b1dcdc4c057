//! Name resolution without the C library: a static binary has no resolver of its own.

use futures::future::BoxFuture;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use hyper_util::client::legacy::connect::dns::Name;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use tower::Service;

/// Resolves the API server's name by `/etc/resolv.conf` and `/etc/hosts`. In a cluster the name is an
/// address, and the resolver is never called.
#[derive(Clone, Debug)]
pub(crate) struct Resolver;

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            // The resolver is built for each connection, so that a changed resolv.conf needs no restart;
            // connections are rare.
            let resolver =
                TokioResolver::builder_tokio().and_then(ResolverBuilder::build).map_err(io::Error::other)?;
            let found = resolver.lookup_ip(name.as_str()).await.map_err(io::Error::other)?;
            let addresses: Vec<SocketAddr> = found.iter().map(|ip: IpAddr| SocketAddr::new(ip, 0)).collect();
            Ok(addresses.into_iter())
        })
    }
}
