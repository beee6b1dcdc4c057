//! The entry point of the fuzz target.

use crate::byte_stream::ClientStream;
use crate::connection_handle::Connection;
use crate::connections::Connections;
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::networks::{Client, KnownClients};
use crate::requests::Protocol;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// Serves a connection that is accepted already and non-blocking, to its end.
pub async fn serve_one<P: Protocol>(protocol: Arc<P>, socket: TcpStream) {
    let client = Client { address: Ipv4Addr::LOCALHOST.into(), on_this_node: true };
    let connections =
        Connections::new(Limits::default(), KnownClients::default(), ConnectionCounts::default());
    let Some(slot) = Arc::new(connections).enter(client, false).await else { return };
    protocol.serve(ClientStream::new(Connection::new(socket, client, slot))).await;
}
