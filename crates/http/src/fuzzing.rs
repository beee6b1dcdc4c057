//! The entry point of the fuzz target.

use crate::byte_stream::ClientStream;
use crate::connection_handle::{Client, Connection};
use crate::connections::{Burst, Connections};
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::networks::KnownClients;
use crate::requests::Protocol;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// Serves a connection that is accepted already and non-blocking, to its end.
pub async fn serve_one<P: Protocol>(protocol: Arc<P>, socket: TcpStream) {
    let client = Client { address: Ipv4Addr::LOCALHOST.into(), on_this_node: true };
    let connections =
        Connections::new(Limits::default(), KnownClients::default(), ConnectionCounts::default());
    let Some(slot) = Arc::new(connections).enter(client, &mut Burst::default()).await else { return };
    let connection = Connection::new(socket, client, &slot);
    protocol.serve(ClientStream::new(connection)).await;
}
