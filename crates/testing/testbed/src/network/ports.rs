//! Ports and addresses that no other process uses.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The range of single ports. The kernel gives ports above 32767 to outgoing connections, so all test ports
/// are below.
const SINGLE: Range<u16> = 26_000..30_000;
const ROWS: Range<u16> = 12_000..24_000;
const ROW: u16 = 40;

/// The counter for the next port or network. Each process starts at another value.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The ports and networks that this process has reserved until it ends.
static TAKEN: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Reserves a port or a network for this process, if no other process has it. The listener may come much
/// later.
///
/// Without the reservation, two processes could get the same port and share it without an error: `HAProxy`,
/// Envoy and the agent all listen with `SO_REUSEPORT`. Like a port, the abstract name of a socket exists once
/// in each network namespace, and the kernel removes it with its process.
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

pub fn free() -> u16 {
    // The reservation comes first, since the test for a free port takes the port for a moment.
    candidates(&SINGLE, 1).find(|port| take(port) && is_free(*port)).expect("a free port")
}

/// Returns the first of forty free ports in a row.
pub fn free_row() -> u16 {
    let is_row = |first: &u16| take(first) && (*first..*first + ROW).all(is_free);
    candidates(&ROWS, ROW).find(is_row).expect("free ports in a row")
}

fn candidates(range: &Range<u16>, each: u16) -> impl Iterator<Item = u16> {
    let (first, count) = (range.start, (range.end - range.start) / each);
    (0..count).map(move |_| first + u16::try_from(next_number() % u32::from(count)).unwrap() * each)
}

fn next_number() -> u32 {
    std::process::id().wrapping_mul(31).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

fn is_free(port: u16) -> bool {
    // On a machine without IPv6, no other process has the port there.
    ["0.0.0.0", "::"].into_iter().all(|ip| {
        let taken = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
        !TcpListener::bind((ip, port)).is_err_and(taken)
    })
}

/// A network of this machine's loopback, 127.0.0.0/8, that no other process uses.
#[derive(Clone, Copy, Debug)]
pub struct Loopback([u8; 3]);

impl Loopback {
    /// Reserves another network of loopback addresses.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let network = |_| {
            let [_, _, high, low] = next_number().to_be_bytes();
            // It is never 127.0, which everything else uses.
            Self([127, high | 0x80, low])
        };
        (0..=u16::MAX).map(network).find(|network| take(network.prefix())).expect("a network of loopback")
    }

    /// Returns the network's address with this number.
    pub fn address(self, number: u8) -> IpAddr {
        let [a, b, c] = self.0;
        Ipv4Addr::new(a, b, c, number).into()
    }

    /// Returns the common start of its addresses, with a dot at the end.
    pub fn prefix(self) -> String {
        let [a, b, c] = self.0;
        format!("{a}.{b}.{c}.")
    }
}
