//! Finds out who has a port, from the kernel's tables of this network namespace.

use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState};
use procfs::{FromBufReadSI, current_system_info};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;

/// The tables of both families.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The most lines of one table that are read to their end.
const MAX_LINES: usize = 64;

/// Returns the two addresses and the user of an outgoing connection that has this address; `None` if a listener has it,
/// or if the tables name nothing.
pub(crate) fn outgoing_connection(address: SocketAddr) -> Option<(SocketAddr, SocketAddr, u32)> {
    let tables = TABLES.iter().filter_map(|table| File::open(table).ok());
    let mut connection = None;
    for entry in tables.flat_map(|table| entries(BufReader::new(table), address.port())) {
        if overlap(entry.local_address, address) {
            if entry.state == TcpState::Listen {
                return None;
            }
            connection = Some((entry.local_address, entry.remote_address, entry.uid));
        }
    }
    connection
}

/// Returns true if a socket at one address keeps another from the other one.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (ip == other || ip.is_unspecified() || other.is_unspecified())
}

/// Returns the entries of a table whose local port is this one. A host may have a hundred thousand others, so
/// only these are kept.
fn entries(mut table: impl BufRead, port: u16) -> Vec<TcpNetEntry> {
    let (local, mut kept, mut line) = (format!(":{port:04X}"), Vec::new(), Vec::new());
    let mut count = 0;
    while count <= MAX_LINES {
        line.clear();
        if !table.by_ref().take(4096).read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            break;
        }
        let address = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1);
        // The first line has the names of the columns, and procfs expects it.
        if count == 0 || address.is_some_and(|address| address.ends_with(local.as_bytes())) {
            kept.extend_from_slice(&line);
            count += 1;
        }
    }
    TcpNetEntries::from_buf_read(&kept[..], current_system_info())
        .map_or_else(|_| Vec::new(), |entries| entries.0)
}
