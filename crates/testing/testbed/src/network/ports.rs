//! Ports and addresses that nobody else has.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The kernel gives ports above 32767 to outgoing connections, so ours are below: these one by one,
const SINGLE: Range<u16> = 26_000..30_000;
/// and these in rows,
const ROWS: Range<u16> = 12_000..24_000;
/// of so many each.
const ROW: u16 = 40;

/// Each process begins elsewhere, and goes on: what somebody has just had is not asked for again at once.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// What this process has been given, until it ends.
static TAKEN: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Takes a port or a network for this process, if no other has it; what listens there may come much later. Without that two
/// would be given the same, and share it in silence: `HAProxy`, Envoy and the agent all listen with `SO_REUSEPORT`. The
/// kernel knows a socket's abstract name once in each network namespace, as it does a port, and forgets it with its process.
fn take(what: impl Display) -> bool {
    let name = SocketAddr::from_abstract_name(format!("nodegate-testbed {what}")).unwrap();
    match UnixDatagram::bind_addr(&name) {
        Ok(socket) => {
            TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{what}: {error}");
            false
        }
    }
}

/// Returns a port that nobody has, on any address.
pub fn free() -> u16 {
    // Taken first: to look whether a port is free is to have it for a moment.
    places(&SINGLE, 1).find(|port| take(port) && is_free(*port)).expect("a free port")
}

/// Returns the first of forty ports in a row that nobody has.
pub fn free_row() -> u16 {
    let is_row = |first: &u16| take(first) && (*first..*first + ROW).all(is_free);
    places(&ROWS, ROW).find(is_row).expect("free ports in a row")
}

fn places(range: &Range<u16>, each: u16) -> impl Iterator<Item = u16> {
    let (first, room) = (range.start, (range.end - range.start) / each);
    (0..room).map(move |_| first + u16::try_from(next_place() % u32::from(room)).unwrap() * each)
}

fn next_place() -> u32 {
    std::process::id().wrapping_mul(31).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
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
        let network = |_| {
            let [_, _, high, low] = next_place().to_be_bytes();
            // Never 127.0, where all else runs.
            Self([127, high | 0x80, low])
        };
        (0..=u16::MAX).map(network).find(|network| take(network.prefix())).expect("a network of loopback")
    }

    /// Returns its address with this number.
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
