//! The first bytes of a connection: a header of the PROXY protocol, which is skipped, or a request without a version,
//! which is completed. Some balancers send a PROXY header also in front of a health check. The agent trusts nothing in
//! it, because any client can write one.

const MAX_LINE: usize = 1024;

/// The target that answers a request without a version, if there is one.
pub(crate) type WithoutVersion = fn(&str) -> Option<&str>;

/// The meaning of the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// More bytes are needed to tell.
    Unclear,
    /// An HTTP request begins after this many bytes.
    At(usize),
    /// A request without a version; these bytes say the same with one.
    Completed(String),
}

impl Start {
    /// Parses the first bytes of a connection.
    pub(crate) fn of(bytes: &[u8], without_version: WithoutVersion) -> Result<Self, Malformed> {
        let Some(header) = proxy_header(bytes)? else { return Ok(Self::Unclear) };
        let request = bytes.get(header..).unwrap_or_default();
        if request.is_empty() && header > 0 {
            return Ok(Self::Unclear);
        }
        let completed = |target| Self::Completed(format!("GET {target} HTTP/1.0\r\n\r\n"));
        Ok(match target_without_version(request) {
            Line::Unclear if request.len() <= MAX_LINE => Self::Unclear,
            Line::Target(target) => without_version(target).map_or(Self::At(header), completed),
            Line::Unclear | Line::Other => Self::At(header),
        })
    }
}

enum Line<'a> {
    Unclear,
    Target(&'a str),
    Other,
}

fn target_without_version(request: &[u8]) -> Line<'_> {
    const GET: &[u8] = b"GET ";
    let Some(rest) = request.strip_prefix(GET) else {
        return if GET.starts_with(request) && !request.is_empty() { Line::Unclear } else { Line::Other };
    };
    // A request with a version need not have arrived with its line's end.
    let words_end = memchr::memchr2(b' ', b'\n', rest);
    match words_end.and_then(|end| Some((rest.get(end)?, rest.get(..end)?))) {
        None => Line::Unclear,
        Some((b'\n', target)) => {
            let target = target.strip_suffix(b"\r").unwrap_or(target);
            std::str::from_utf8(target).map_or(Line::Other, Line::Target)
        }
        Some(_) => Line::Other,
    }
}

/// The start of a version 1 header, and its longest length with the line end.
const V1: &[u8] = b"PROXY ";
const MAX_V1_BYTES: usize = 107;

/// The start of a version 2 header, and the length of its fixed part.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// The longest header of either version that is accepted. The protocol allows 64 KiB of extensions; balancers
/// send some dozens of bytes.
const MAX_HEADER_BYTES: usize = 1024;

/// The error for bytes that begin like a header and are not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Returns the length of the header at the start of a connection, 0 if there is none, and `None` if more
/// bytes are needed.
fn proxy_header(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    if bytes.starts_with(V1) {
        return v1(bytes);
    }
    if bytes.starts_with(V2) {
        return v2(bytes);
    }
    let may_begin = V1.starts_with(bytes) || V2.starts_with(bytes);
    Ok((!may_begin).then_some(0))
}

/// Finds the end of a line such as `PROXY TCP4 192.0.2.1 192.0.2.2 1024 80`. The addresses are not read.
fn v1(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    const FAMILIES: [&[u8]; 3] = [b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"];
    let within = bytes.get(..MAX_V1_BYTES).unwrap_or(bytes);
    match memchr::memmem::find(within, b"\r\n") {
        Some(end) if FAMILIES.iter().any(|family| within.starts_with(family)) => Ok(Some(end + 2)),
        None if bytes.len() < MAX_V1_BYTES => Ok(None),
        _ => Err(Malformed),
    }
}

/// Reads the length from the fixed part: signature, version and command, family and transport, and length.
fn v2(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some((fixed, _)) = bytes.split_at_checked(V2_FIXED) else { return Ok(None) };
    match fixed.get(V2.len()..) {
        Some(&[0x20 | 0x21, _family, high, low]) => {
            let whole = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
            if whole <= MAX_HEADER_BYTES {
                Ok((bytes.len() >= whole).then_some(whole))
            } else {
                Err(Malformed)
            }
        }
        _ => Err(Malformed),
    }
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
            v2_header(0x21, 0x11, MAX_HEADER_BYTES - V2_FIXED),
        ];
        v1.iter().map(|line| line.as_bytes().to_vec()).chain(v2).collect()
    }

    #[test]
    fn a_header_is_found_and_any_part_of_it_must_wait() {
        for header in whole() {
            assert_eq!(proxy_header(&header), Ok(Some(header.len())));
            assert_eq!(proxy_header(&[&header, REQUEST].concat()), Ok(Some(header.len())));
            for part in 0..header.len() {
                assert_eq!(proxy_header(&header[..part]), Ok(None), "{part} of {header:?}");
            }
        }
    }

    #[test]
    fn a_header_that_only_begins_as_one_is_malformed() {
        let lines = [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY / HTTP/1.1\r\n",
            &format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)),
        ];
        let v2 = [
            v2_header(0x11, 0x11, 12),
            v2_header(0x22, 0x11, 12),
            v2_header(0x21, 0x11, MAX_HEADER_BYTES - V2_FIXED + 1),
        ];
        for bytes in lines.iter().map(|line| line.as_bytes().to_vec()).chain(v2) {
            assert_eq!(proxy_header(&bytes), Err(Malformed), "{bytes:?}");
        }
    }

    proptest! {
        /// More bytes never change a result, and the parser waits for no more than the bound.
        #[test]
        fn more_bytes_change_no_result(
            start in prop_oneof![Just(V1.to_vec()), Just(V2.to_vec()), Just(Vec::new())],
            rest in proptest::collection::vec(any::<u8>(), 0..2 * MAX_HEADER_BYTES),
        ) {
            let bytes = [start, rest].concat();
            let said: Vec<_> = (0..=bytes.len()).map(|length| proxy_header(&bytes[..length])).collect();
            for pair in said.windows(2) {
                prop_assert!(pair[0] == Ok(None) || pair[0] == pair[1], "{pair:?}");
            }
            prop_assert!(bytes.len() < MAX_HEADER_BYTES || *said.last().unwrap() != Ok(None));
        }
    }

    fn of(bytes: &[u8]) -> Result<Start, Malformed> {
        Start::of(bytes, |target| match target {
            "/" => Some("/nodecheck"),
            "/health" => Some(target),
            _ => None,
        })
    }

    #[test]
    fn a_request_without_a_version_is_completed() {
        for line in ["GET /\r\n", "GET /\n", "GET /\r\n\r\n", "GET /\r\nanything"] {
            let completed = Start::Completed("GET /nodecheck HTTP/1.0\r\n\r\n".to_owned());
            assert_eq!(of(line.as_bytes()), Ok(completed), "{line:?}");
            for part in 0..line.find('\n').unwrap() {
                let part = &line.as_bytes()[..part];
                assert!(matches!(of(part), Ok(Start::Unclear)) || part.is_empty(), "{part:?}");
            }
        }
        let proxied = of(b"PROXY UNKNOWN\r\nGET /health\r\n");
        assert_eq!(proxied, Ok(Start::Completed("GET /health HTTP/1.0\r\n\r\n".to_owned())));
    }

    #[test]
    fn all_else_is_left_to_hyper() {
        for request in [
            "GET /metrics\r\n",
            "GET / HTTP/1.1\r\n",
            "GET / ",
            "HEAD /\r\n",
            "PUT /",
            "POST",
            "\r\nG",
            "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "\0",
        ] {
            assert_eq!(of(request.as_bytes()), Ok(Start::At(0)), "{request:?}");
        }
        assert_eq!(of(b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n"), Ok(Start::At(15)));
        assert_eq!(of(b"PROXY TCP9 a b 1 2\r\n"), Err(Malformed));
        let endless = [b"GET /".as_slice(), &[b'a'; MAX_LINE]].concat();
        assert_eq!(of(&endless), Ok(Start::At(0)));
    }
}
