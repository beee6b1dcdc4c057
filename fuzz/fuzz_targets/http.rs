//! Any bytes on the HTTP port: the output is HTTP, and each body is as its headers say.
#![no_main]

use nodegate_fuzz::{app, exchange, run};
use nodegate_server::App;
use nodegate_server::fuzzing::serve_http;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

static APP: LazyLock<Arc<App>> = LazyLock::new(app);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let serve = async |socket| serve_http(APP.clone(), socket).await;
    let answer = run(exchange(bytes, serve));
    if !answer.starts_with(b"HTTP/1.") {
        let first_line = bytes.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"GET /"));
        let has_version = |line: &[u8]| line.windows(6).any(|window| window == b" HTTP/");
        assert!(answer.is_empty() || first_line.is_some_and(|line| !has_version(line)), "a body alone");
        return;
    }
    let mut rest = &answer[..];
    let mut responses = 0;
    while !rest.is_empty() {
        rest = response(rest, bytes);
        responses += 1;
    }
    // The shortest possible request has 18 bytes.
    assert!(responses <= bytes.len() / 14 + 1, "{responses} responses to {} bytes", bytes.len());
});

/// Reads one response and returns the bytes after it.
fn response<'a>(answer: &'a [u8], request: &[u8]) -> &'a [u8] {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head has an end") + 4;
    let head = std::str::from_utf8(&answer[..end]).expect("a head is text");
    let mut lines = head.split("\r\n");
    let status_line = lines.next().expect("there is a first line");
    assert!(status_line.starts_with("HTTP/1.1 ") || status_line.starts_with("HTTP/1.0 "), "{status_line}");
    let status: u16 = status_line[9..12].parse().expect("a status is a number");
    let drain = request.windows(5).any(|window| window == b"drain");
    let known = matches!(status, 200 | 400 | 404 | 405 | 413 | 414 | 431 | 500 | 503);
    assert!(known || (drain && (200..=599).contains(&status)), "{status_line}");
    let header = |name: &str| {
        let prefix = format!("{name}: ");
        head.split("\r\n").find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
    };
    let length: usize =
        header("content-length").map_or(0, |length| length.parse().expect("a length is a number"));
    let rest = &answer[end..];
    // An answer to HEAD has the length of the GET's body.
    if rest.is_empty() || rest.starts_with(b"HTTP/1.") {
        return rest;
    }
    let (body, rest) = rest.split_at_checked(length).expect("a body is as long as it says");
    if header("content-type").as_deref() == Some("application/json") {
        serde_json::from_slice::<Value>(body).expect("JSON is JSON");
    }
    assert_eq!(header("cache-control").as_deref(), Some("no-store"), "{head}");
    rest
}
