//! A client that may do anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Far more than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Enough for all stories at once.
const DESCRIPTORS: u64 = 30_000;

/// Lets this process have as many connections as the stories need.
fn raise_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = getrlimit(Resource::Nofile);
        let wanted =
            Rlimit { current: Some(DESCRIPTORS), maximum: limit.maximum.map(|most| most.max(DESCRIPTORS)) };
        // Only root may raise the upper limit.
        let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, wanted).or_else(|_| setrlimit(Resource::Nofile, most)).unwrap();
    });
}

/// A connection from one of many loopback addresses, so that a flood does not use up the ports of one.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    raise_limit();
    let [_, _, a, b] = (COUNT.fetch_add(1, Ordering::Relaxed) / 1000 + 1).to_be_bytes();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor is left");
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 9, a, b), 0)).into()).unwrap();
    socket.connect_timeout(&to.into(), PATIENCE).expect("the kernel accepts");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Many connections, none of which says anything.
pub(crate) fn connect_many(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| connect(to)).collect()
}

/// Ends a connection with a reset instead of a farewell.
pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Sends this, and nothing more, and reads to the end. The agent need not read it all, nor end it cleanly.
pub(crate) fn exchange(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(to);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read_all(&mut stream)
}

/// What is sent until the connection ends.
pub(crate) fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("neither an answer nor an end: {error}")
        }
        _ => String::from_utf8(answer).unwrap(),
    }
}

/// Whether the agent has closed or reset the connection; never waits.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 4096]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}
