//! PROXY headers. The result for some bytes stays the same when more bytes come. A header has the form of its
//! version. The request after it gets the same answer as without it.
#![no_main]

use nodegate_fuzz::{app, exchange, facts, run, selector};
use nodegate_readiness::ConditionStatus;
use nodegate_server::App;
use nodegate_server::fuzzing::{proxy_header, serve_http};
use std::cell::OnceCell;
use std::sync::Arc;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const REQUEST: &[u8] = b"GET /nodename HTTP/1.1\r\nConnection: close\r\n\r\n";

thread_local!(static APP: OnceCell<Arc<App>> = const { OnceCell::new() });

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = selector(data) else { return };
    let start: &[u8] = match which % 4 {
        0 => b"",
        1 => b"PROXY ",
        2 => SIGNATURE,
        _ => b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0",
    };
    let bytes = [start, data].concat();
    let whole = proxy_header(&bytes);
    let mut length = bytes.len();
    while length > 0 {
        length /= 2;
        let part = proxy_header(&bytes[..length]);
        assert!(part == Ok(None) || part == whole, "{part:?} of a part, {whole:?} of all");
    }
    if let Ok(Some(length @ 1..)) = whole {
        let header = &bytes[..length];
        if let Some(rest) = header.strip_prefix(SIGNATURE) {
            assert_eq!(length, 16 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        } else {
            assert!(header.starts_with(b"PROXY ") && header.ends_with(b"\r\n") && length <= 107);
            assert!(!header[..length - 2].windows(2).any(|pair| pair == b"\r\n"));
        }
        answered_as_alone(header);
    }
});

fn answered_as_alone(header: &[u8]) {
    APP.with(|app_once| {
        let app = app_once.get_or_init(|| app(facts(ConditionStatus::True, "KubeletReady"))).clone();
        let answer = run(exchange(&[header, REQUEST].concat(), |socket| serve_http(app, socket)));
        assert!(answer.ends_with(b"Node: \"n1\""), "{}", String::from_utf8_lossy(&answer));
    });
}
