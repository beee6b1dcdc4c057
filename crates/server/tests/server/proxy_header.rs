//! Balancers that send a PROXY header in front of their checks.

use crate::scenario::{Client, Running, Scenario};

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x04\0\0\x50";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1024 80\r\n";
const REQUEST: &[u8] = b"GET /nodecheck HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const KEEPING: &[u8] = b"GET /nodecheck HTTP/1.1\r\nHost: a\r\n\r\n";

fn connect(server: &Running, parts: &[&[u8]]) -> Client {
    let mut client = server.connect();
    for part in parts {
        client.send(part);
        // Makes the bytes arrive one by one, most of the time.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    client
}

#[test]
fn a_header_is_skipped_and_not_believed() {
    let server = Scenario::default().serve();
    for _ in 0..3 {
        for header in [V1, V2] {
            let whole = [header, REQUEST].concat();
            let (begin, end) = whole.split_at(header.len() - 3);
            for parts in [&[whole.as_slice()][..], &[header, REQUEST], &[begin, end], &[REQUEST]] {
                let answer = connect(&server, parts).last_response();
                assert_eq!((answer.status, answer.body.as_str()), (200, "OK"), "{parts:?}");
            }
            let mut kept = connect(&server, &[&[header, KEEPING].concat()]);
            for _ in 0..3 {
                assert_eq!(kept.response().body, "OK");
                kept.send(KEEPING);
            }
            assert_eq!(kept.response().body, "OK");
        }
    }
    let probers = server.app.status(server.now()).probers;
    assert!(probers.iter().all(|prober| prober.address == "127.0.0.1"), "{probers:?}");
}
