//! Clients of a balancer that keep their connections.

use nodegate_testbed::http;
use nodegate_testbed::prober::Saw;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const A_REQUEST: Duration = Duration::from_secs(5);
/// How many requests a kept connection gets. The next connection may come to the other node.
const REQUESTS_OF_A_CONNECTION: u32 = 40;

/// A client that keeps its connection until the server says that it closes it.
#[derive(Default)]
pub(super) struct Kept {
    connection: Option<(TcpStream, u32)>,
}

/// Each client has a connection of its own.
impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Kept {
    pub(super) fn request(&mut self, to: SocketAddr) -> Saw {
        self.exchange(to).unwrap_or_else(|error| Saw::Failed(error.to_string()))
    }

    fn exchange(&mut self, to: SocketAddr) -> std::io::Result<Saw> {
        let (mut stream, number) = match self.connection.take() {
            Some(kept) => kept,
            None => (TcpStream::connect_timeout(&to, A_REQUEST)?, 0),
        };
        stream.set_read_timeout(Some(A_REQUEST))?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")?;
        // A connection that ends without a word is a request that is lost: no client may repeat every request.
        let Some(reply) = http::read_answer(&mut stream)? else {
            return Ok(Saw::Failed(format!("the kept connection ended after {number} requests")));
        };
        let closes = reply.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !closes && number < REQUESTS_OF_A_CONNECTION {
            self.connection = Some((stream, number + 1));
        }
        Ok(match reply.status {
            200 => Saw::Answer(200, String::new()),
            status => Saw::Failed(status.to_string()),
        })
    }
}
