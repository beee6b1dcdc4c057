//! Requests with known heads. After any first connection, the next connection gets the same answer as from a
//! server without memory, except for the date.
#![no_main]

use nodegate_fuzz::{app, exchange, facts, run, selector};
use nodegate_readiness::ConditionStatus;
use nodegate_server::App;
use nodegate_server::fuzzing::HttpServer;
use std::cell::OnceCell;
use std::sync::Arc;

thread_local!(static APP: OnceCell<Arc<App>> = const { OnceCell::new() });

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // The bytes to learn, and the bytes of the next request: the same ones, and others that may be nearly the
    // same.
    let Some((split, data)) = selector(data) else { return };
    let (taught, other) = data.split_at(data.len() * usize::from(split) / 255);
    let app = APP
        .with(|app_once| app_once.get_or_init(|| app(facts(ConditionStatus::True, "KubeletReady"))).clone());
    let server = run(async { HttpServer::new(app.clone(), false) }).expect("a thread can be started");
    for bytes in [taught, taught, other, taught, other] {
        let ignorant = run(async { HttpServer::new(app.clone(), false) }).expect("a thread can be started");
        let parsed = run(exchange(bytes, |socket| async move { ignorant.serve(socket).await }));
        let known = run(exchange(bytes, |socket| server.serve(socket)));
        if tells_time(&parsed) {
            continue;
        }
        assert_eq!(undated(&known), undated(&parsed));
    }
});

/// Returns true if the answer differs each time.
fn tells_time(answer: &[u8]) -> bool {
    let has = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
    has(b"uptime_ms") || has(b"process_cpu") || has(b"<!doctype") || has(b"start_id") || has(b"Retry-After")
}

fn undated(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}
