//! Ports and addresses that nobody else has.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel gives ports above 32767 to outgoing connections, so ours are below: these one by one,
const SINGLE: Range<u16> = 26_000..30_000;
/// and these in rows,
const ROWS: Range<u16> = 12_000..24_000;
/// of so many each.
const ROW: u16 = 40;

/// Given to nobody else in this process; other processes begin elsewhere.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A port that nobody has, on any address.
pub fn free() -> u16 {
    places(&SINGLE, 1).find(|port| is_free(*port)).expect("a free port")
}

/// The first of forty ports in a row that nobody has.
pub fn free_row() -> u16 {
    places(&ROWS, ROW).find(|first| (*first..*first + ROW).all(is_free)).expect("free ports in a row")
}

fn places(range: &Range<u16>, each: u16) -> impl Iterator<Item = u16> {
    let (first, room) = (range.start, (range.end - range.start) / each);
    (0..room).map(move |_| {
        let place = std::process::id().wrapping_mul(31).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        first + u16::try_from(place % u32::from(room)).unwrap() * each
    })
}

fn is_free(port: u16) -> bool {
    // A machine without IPv6 has nobody there.
    ["0.0.0.0", "::"].into_iter().all(|ip| {
        let taken = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
        !TcpListener::bind((ip, port)).is_err_and(taken)
    })
}

/// A network of this machine's loopback, 127.0.0.0/8, that nobody else has.
#[derive(Clone, Copy, Debug)]
pub struct Loopback([u8; 3]);

impl Loopback {
    /// One more.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let place = std::process::id().wrapping_mul(31).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        let [_, _, high, low] = place.to_be_bytes();
        // Never 127.0, where all else runs.
        Self([127, high | 0x80, low])
    }

    /// Its address with this number.
    pub fn address(self, number: u8) -> IpAddr {
        let [a, b, c] = self.0;
        Ipv4Addr::new(a, b, c, number).into()
    }

    /// What its addresses begin with, with a dot behind.
    pub fn prefix(self) -> String {
        let [a, b, c] = self.0;
        format!("{a}.{b}.{c}.")
    }
}
