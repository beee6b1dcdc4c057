//! A client that may do anything.

use nodegate_testbed::http::PATIENCE;
use nodegate_testbed::process::allow_descriptors;
use socket2::{Domain, SockRef, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The number of file descriptors that all tests need together.
const DESCRIPTORS: u64 = 30_000;

/// Opens a connection from one of many loopback addresses, so that a flood does not use up the ports of one.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        allow_descriptors(DESCRIPTORS);
    });
    let [_, _, a, b] = (COUNT.fetch_add(1, Ordering::Relaxed) / 1000 + 1).to_be_bytes();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor is left");
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 9, a, b), 0)).into()).unwrap();
    socket.connect_timeout(&to.into(), PATIENCE).expect("the kernel accepts");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Opens many connections, none of which sends anything.
pub(crate) fn connect_many(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| connect(to)).collect()
}

/// Ends a connection with a reset instead of a FIN.
pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
