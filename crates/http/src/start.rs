//! The first bytes of a connection: a PROXY header, which is skipped, or a request without a version, which is
//! completed.

use crate::proxy_header::{self, Malformed};

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
        let Some(header) = proxy_header::find(bytes)? else { return Ok(Self::Unclear) };
        let request = bytes.get(header..).unwrap_or_default();
        if request.is_empty() && header > 0 {
            return Ok(Self::Unclear);
        }
        Ok(match target_without_version(request) {
            Line::Unclear if request.len() <= MAX_LINE => Self::Unclear,
            Line::Target(target) => match without_version(target) {
                Some(target) => Self::Completed(format!("GET {target} HTTP/1.0\r\n\r\n")),
                None => Self::At(header),
            },
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for request in
            ["GET /metrics\r\n", "GET / HTTP/1.1\r\n", "GET / ", "HEAD /\r\n", "POST", "\r\nG", "\0"]
        {
            assert_eq!(of(request.as_bytes()), Ok(Start::At(0)), "{request:?}");
        }
        assert_eq!(of(b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n"), Ok(Start::At(15)));
        assert_eq!(of(b"PROXY TCP9 a b 1 2\r\n"), Err(Malformed));
        let endless = [b"GET /".as_slice(), &[b'a'; MAX_LINE]].concat();
        assert_eq!(of(&endless), Ok(Start::At(0)));
    }
}
