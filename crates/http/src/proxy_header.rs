//! The header of the PROXY protocol, versions 1 and 2. Some balancers also send it in front of a health
//! check. The agent skips it and trusts nothing in it, because any client can write one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The start of a version 1 header, and its longest length with the line end.
const V1: &[u8] = b"PROXY ";
const MOST_OF_V1: usize = 107;

/// The start of a version 2 header, and the length of its fixed part.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// The longest header of either version that is accepted. The protocol allows 64 KiB of extensions; balancers
/// send some dozens of bytes.
pub(crate) const MOST: usize = 1024;

/// The error for bytes that begin like a header and are not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Returns the length of the header at the start of a connection, 0 if there is none, and `None` if more
/// bytes are needed.
pub(crate) fn find(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    if bytes.starts_with(V1) {
        return v1(bytes);
    }
    if bytes.starts_with(V2) {
        return v2(bytes);
    }
    let may_begin = V1.starts_with(bytes) || V2.starts_with(bytes);
    Ok((!may_begin).then_some(0))
}

/// Parses a line such as `PROXY TCP4 192.0.2.1 192.0.2.2 1024 80`.
fn v1(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let within = bytes.get(..MOST_OF_V1).unwrap_or(bytes);
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < MOST_OF_V1 { Ok(None) } else { Err(Malformed) };
    };
    let line = within.get(..end).and_then(|line| std::str::from_utf8(line).ok()).ok_or(Malformed)?;
    let mut words = line.split(' ').skip(1);
    let (family, mut next) = (words.next(), || words.next().ok_or(Malformed));
    let is_address: fn(&str) -> bool = match family {
        // The rest of the line must be ignored.
        Some("UNKNOWN") => return Ok(Some(end + 2)),
        Some("TCP4") => |word| word.parse::<Ipv4Addr>().is_ok(),
        Some("TCP6") => |word| word.parse::<Ipv6Addr>().is_ok() || word.parse::<IpAddr>().is_ok(),
        _ => return Err(Malformed),
    };
    let are_addresses = is_address(next()?) && is_address(next()?);
    let are_ports = next()?.parse::<u16>().is_ok() && next()?.parse::<u16>().is_ok();
    let well_formed = are_addresses && are_ports && words.next().is_none();
    if well_formed { Ok(Some(end + 2)) } else { Err(Malformed) }
}

/// Parses the signature, version and command, family and transport, and the length of the rest.
fn v2(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some((fixed, _)) = bytes.split_at_checked(V2_FIXED) else { return Ok(None) };
    let Some(&[version_and_command, family, high, low]) = fixed.get(V2.len()..) else {
        return Err(Malformed);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let addresses = match family {
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        _ => return Err(Malformed),
    };
    let is_known = match version_and_command {
        // LOCAL: the balancer's own connection; its addresses must be ignored.
        0x20 => true,
        0x21 => length >= addresses,
        _ => false,
    };
    let whole = V2_FIXED + length;
    if !is_known || whole > MOST {
        return Err(Malformed);
    }
    Ok((bytes.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\n\r\n";

    fn v2_header(version_and_command: u8, family: u8, payload: usize) -> Vec<u8> {
        let length = u16::try_from(payload).unwrap().to_be_bytes();
        [V2, &[version_and_command, family], &length, &vec![7; payload]].concat()
    }

    fn whole() -> Vec<Vec<u8>> {
        let v1 = [
            "PROXY TCP4 192.0.2.1 192.0.2.2 1024 80\r\n",
            "PROXY TCP6 2001:db8::1 2001:db8::2 65535 1\r\n",
            "PROXY UNKNOWN\r\n",
            "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
        ];
        let v2 = [
            v2_header(0x20, 0x00, 0),
            v2_header(0x20, 0x11, 3),
            v2_header(0x21, 0x11, 12),
            v2_header(0x21, 0x11, 12 + 40),
            v2_header(0x21, 0x21, 36),
            v2_header(0x21, 0x31, 216),
            v2_header(0x21, 0x11, MOST - V2_FIXED),
        ];
        v1.iter().map(|line| line.as_bytes().to_vec()).chain(v2).collect()
    }

    #[test]
    fn a_header_is_found_and_any_part_of_it_must_wait() {
        for header in whole() {
            assert_eq!(find(&header), Ok(Some(header.len())));
            assert_eq!(find(&[&header, REQUEST].concat()), Ok(Some(header.len())));
            for part in 0..header.len() {
                assert_eq!(find(&header[..part]), Ok(None), "{part} of {header:?}");
            }
        }
    }

    #[test]
    fn a_request_is_no_header() {
        for request in
            [REQUEST, b"G", b"PUT /", b"POST", b"\r\nGET /", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"\0"]
        {
            assert_eq!(find(request), Ok(Some(0)), "{request:?}");
        }
    }

    #[test]
    fn what_only_begins_as_one_is_malformed() {
        let lines = [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.256 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY / HTTP/1.1\r\n",
            &format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)),
        ];
        let v2 = [
            v2_header(0x11, 0x11, 12),
            v2_header(0x22, 0x11, 12),
            v2_header(0x21, 0x41, 12),
            v2_header(0x21, 0x13, 12),
            v2_header(0x21, 0x11, 11),
            v2_header(0x21, 0x21, 35),
            v2_header(0x21, 0x11, MOST - V2_FIXED + 1),
        ];
        for bytes in lines.iter().map(|line| line.as_bytes().to_vec()).chain(v2) {
            assert_eq!(find(&bytes), Err(Malformed), "{bytes:?}");
        }
    }

    proptest! {
        /// More bytes never change a result, and the parser waits for no more than the bound.
        #[test]
        fn what_was_said_holds(
            start in prop_oneof![Just(V1.to_vec()), Just(V2.to_vec()), Just(Vec::new())],
            rest in proptest::collection::vec(any::<u8>(), 0..2 * MOST),
        ) {
            let bytes = [start, rest].concat();
            let said: Vec<_> = (0..=bytes.len()).map(|length| find(&bytes[..length])).collect();
            for pair in said.windows(2) {
                prop_assert!(pair[0] == Ok(None) || pair[0] == pair[1], "{pair:?}");
            }
            prop_assert!(bytes.len() < MOST || *said.last().unwrap() != Ok(None));
        }
    }
}
