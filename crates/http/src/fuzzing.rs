//! The entry point of the fuzz target.

use crate::byte_stream::ClientStream;
use crate::connection_handle::{Client, Connection};
use crate::connections::Connections;
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::requests::Protocol;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// Serves a connection that is accepted already and non-blocking, to its end.
pub async fn serve_one<P: Protocol>(protocol: Arc<P>, socket: TcpStream) {
    let client = Client { address: Ipv4Addr::LOCALHOST.into(), on_this_node: true };
    let connections = Arc::new(Connections::new(Limits::default(), ConnectionCounts::default()));
    let Some(slot) = connections.enter(client.address) else { return };
    let connection = Connection::new(socket, client, Arc::clone(&slot.activity), Arc::default());
    protocol.serve(ClientStream::new(connection)).await;
}
