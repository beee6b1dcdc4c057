//! Bytes that are not HTTP, or only nearly.

use super::client::connect;
use super::scene::Scene;
use nodegate_testbed::http::{ask_on, read_all};
use socket2::SockRef;
use std::io::Write;

/// The expected reaction of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gets {
    /// One answer with this status, then the end of the connection.
    One(u16),
    /// The end of the connection without a byte.
    Nothing,
}
use Gets::{Nothing, One};

fn head(rest: &str) -> Vec<u8> {
    format!("GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{rest}\r\n").into_bytes()
}

fn line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: a\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Returns bytes without a pattern, the same in each run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(step).collect()
}

/// Returns inputs of which each ends its own connection, with one answer at most.
fn hostile_bytes() -> Vec<(&'static str, Vec<u8>, Gets)> {
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".iter().copied().chain(noise(506));
    vec![
        ("a TLS hello", tls_hello.collect(), One(400)),
        ("the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0".to_vec(), Nothing),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(), One(400)),
        ("noise", noise(1 << 20), One(400)),
        ("NULs", vec![0; 1 << 20], One(400)),
        ("nothing", Vec::new(), Nothing),
        ("empty lines alone", b"\r\n".repeat(1000), Nothing),
        ("empty lines first", [b"\r\n\r\n".to_vec(), head("")].concat(), One(200)),
        ("a cut head", b"GET /livez HTTP/1.1\r\nHos".to_vec(), Nothing),
        // === Versions ===
        ("HTTP/0.9", b"GET /livez\r\n".to_vec(), One(400)),
        ("HTTP/1.9", line("GET /livez HTTP/1.9"), One(400)),
        ("HTTP/2.0", line("GET /livez HTTP/2.0"), One(400)),
        ("HTTP/11", line("GET /livez HTTP/11"), One(400)),
        ("http/1.1", line("GET /livez http/1.1"), One(400)),
        ("line feeds alone", b"GET /livez HTTP/1.0\n\n".to_vec(), One(200)),
        // === Methods ===
        ("an unknown method", line("BREW /livez HTTP/1.1"), One(405)),
        ("a NUL in the method", line("G\0T /livez HTTP/1.1"), One(400)),
        ("no method", line(" /livez HTTP/1.1"), One(400)),
        ("a method of 100 KB", line(&format!("{} / HTTP/1.1", "A".repeat(100_000))), One(431)),
        // === Targets ===
        ("no target", line("GET  HTTP/1.1"), One(400)),
        ("a relative target", line("GET livez HTTP/1.1"), One(404)),
        ("an absolute target", line("GET http://elsewhere/livez HTTP/1.1"), One(200)),
        ("an authority", line("GET elsewhere:80 HTTP/1.1"), One(404)),
        ("CONNECT", line("CONNECT elsewhere:80 HTTP/1.1"), One(405)),
        ("an asterisk", line("GET * HTTP/1.1"), One(404)),
        ("OPTIONS of an asterisk", line("OPTIONS * HTTP/1.1"), One(200)),
        ("a NUL in the target", line("GET /li\0vez HTTP/1.1"), One(400)),
        ("a control byte in the target", line("GET /li\x01vez HTTP/1.1"), One(400)),
        ("a space in the target", line("GET /li vez HTTP/1.1"), One(400)),
        ("an encoded target", line("GET /%6civez HTTP/1.1"), One(404)),
        ("an encoded NUL", line("GET /livez%00 HTTP/1.1"), One(404)),
        ("an encoded slash", line("GET /services%2fa%2fb HTTP/1.1"), One(404)),
        ("dots", line("GET /../../etc/passwd HTTP/1.1"), One(404)),
        ("encoded dots", line("GET /services/%2e%2e/%2e%2e HTTP/1.1"), One(404)),
        ("a long Service", line(&format!("GET /services/{}/x HTTP/1.1", "a".repeat(7000))), One(404)),
        ("a target of 1 MB", line(&format!("GET /{} HTTP/1.1", "a".repeat(1 << 20))), One(431)),
        // === Headers ===
        ("a header of 1 MB", head(&format!("X: {}\r\n", "a".repeat(1 << 20))), One(431)),
        ("a header name of 1 MB", head(&format!("{}: x\r\n", "a".repeat(1 << 20))), One(431)),
        ("10,000 headers", head(&"A: b\r\n".repeat(10_000)), One(431)),
        ("100 headers", head(&"A: b\r\n".repeat(99)), One(431)),
        ("a NUL in a header", head("X: a\0b\r\n"), One(400)),
        ("a bare CR in a header", head("X: a\rb\r\n"), One(400)),
        ("a header without a colon", head("nonsense\r\n"), One(400)),
        ("a space before the colon", head("Host : b\r\n"), One(400)),
        ("a folded header", head("X: a\r\n  b\r\n"), One(400)),
        ("two Hosts", head("Host: b\r\n"), One(200)),
        ("bytes above ASCII", head("X: \u{fffd}\u{e9}\r\n"), One(200)),
    ]
}

/// Returns requests with bodies. The agent never takes the bytes after a head for a request: the connection
/// ends with the answer.
fn smuggled() -> Vec<(&'static str, String, Gets)> {
    let post = |headers: &str, body: &str| format!("POST /livez HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let inner = "GET /nodename HTTP/1.1\r\nHost: a\r\n\r\n";
    vec![
        ("a body", post("Content-Length: 36\r\n", inner), One(405)),
        (
            "a body that GET does not have",
            format!("GET /livez HTTP/1.1\r\nContent-Length: 36\r\n\r\n{inner}"),
            One(200),
        ),
        (
            "CL.TE",
            post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", &format!("0\r\n\r\n{inner}")),
            One(405),
        ),
        (
            "TE.CL",
            post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &format!("5c\r\n{inner}0\r\n\r\n")),
            One(405),
        ),
        ("TE.TE", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", inner), One(400)),
        ("an unknown coding", post("Transfer-Encoding: xchunked\r\n", inner), One(400)),
        ("two lengths", post("Content-Length: 0\r\nContent-Length: 36\r\n", inner), One(400)),
        ("a list of lengths", post("Content-Length: 0, 36\r\n", inner), One(400)),
        ("a negative length", post("Content-Length: -1\r\n", inner), One(400)),
        ("a signed length", post("Content-Length: +0\r\n", inner), One(400)),
        ("a length above 64 bits", post("Content-Length: 18446744073709551616\r\n", inner), One(400)),
        ("a length of 18 EB", post("Content-Length: 18446744073709551614\r\n", inner), One(431)),
        ("an expectation", post("Expect: 100-continue\r\nContent-Length: 36\r\n", inner), One(405)),
        ("a bad chunk", post("Transfer-Encoding: chunked\r\n", &format!("zz\r\n{inner}")), One(405)),
        (
            "a chunk above 64 bits",
            post("Transfer-Encoding: chunked\r\n", &format!("ffffffffffffffff0\r\n{inner}")),
            One(405),
        ),
        (
            "an upgrade",
            head_with("Upgrade: h2c\r\nConnection: Upgrade\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
            One(200),
        ),
    ]
}

fn head_with(headers: &str) -> String {
    format!("GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

/// Returns the difference to the expected reaction, or `None`.
fn mismatch(scene: &Scene, what: &str, bytes: &[u8], gets: Gets) -> Option<String> {
    let answer = ask_on(connect(scene.address()), bytes);
    let found = match answer.matches("HTTP/1.").count() {
        0 if answer.is_empty() => Some(Nothing),
        1 => answer.get(9..12).and_then(|code| code.parse().ok()).map(One),
        _ => None,
    };
    (found != Some(gets)).then(|| format!("{what}: not {gets:?} but {answer}"))
}

#[test]
fn bytes_that_are_not_http_end_only_their_own_connection() {
    let mut scene = Scene::begin("bytes", &[]);
    let clients = hostile_bytes().into_iter();
    let wrong: Vec<_> =
        clients.filter_map(|(what, bytes, gets)| mismatch(&scene, what, &bytes, gets)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    scene.look();
    scene.end();
}

#[test]
fn request_bodies_are_not_read_and_smuggle_no_request() {
    let mut scene = Scene::begin("bodies", &[]);
    let clients = smuggled().into_iter();
    let wrong: Vec<_> =
        clients.filter_map(|(what, text, gets)| mismatch(&scene, what, text.as_bytes(), gets)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // An endless body: the agent ends the connection after the amount that a polite client may have in
    // flight.
    for headers in ["Content-Length: 9000000000", "Transfer-Encoding: chunked"] {
        let mut stream = connect(scene.address());
        stream.write_all(format!("POST /livez HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes()).unwrap();
        let chunk = [b"4000\r\n".as_slice(), &[b'x'; 0x4000], b"\r\n"].concat();
        let taken = (0..1000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        assert!(taken < 1000, "{headers}: 16 MB were taken");
    }
    scene.look();
    scene.end();
}

#[test]
fn tcp_urgent_data_affects_no_other_connection() {
    let mut scene = Scene::begin("urgent data", &[]);
    let urgent = |_| {
        let mut stream = connect(scene.address());
        stream.write_all(b"GET /live").unwrap();
        SockRef::from(&stream).send_out_of_band(b"!").unwrap();
        stream.write_all(b"z HTTP/1.0\r\n\r\n").unwrap();
        stream
    };
    let streams: Vec<_> = (0..100).map(urgent).collect();
    scene.look();
    // The urgent byte is not part of the request. But a read that ends at it looks like the last one, so the
    // agent cuts some of the connections off as too slow.
    for mut stream in streams {
        let answer = read_all(&mut stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.0 200 "), "{answer}");
    }
    scene.end();
}
