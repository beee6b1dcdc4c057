//! Ports for a program that takes several.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many there are from the first one on.
const ROOM: u16 = 40;

/// The first of some ports in a row, all free a moment ago and given to nobody else in this process. The kernel gives those
/// above 32767 to outgoing connections, so they are below.
pub fn free_ports() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let bases = std::iter::repeat_with(|| {
        let place = std::process::id().wrapping_mul(31).wrapping_add(COUNT.fetch_add(1, Ordering::SeqCst));
        12_000 + u16::try_from(place % 300).unwrap() * ROOM
    });
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    bases.take(300).find(|base| (*base..*base + ROOM).all(free)).expect("free ports in a row")
}
