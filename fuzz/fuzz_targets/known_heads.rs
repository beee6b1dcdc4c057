//! Requests that are known: whatever was learned from one connection, the next one gets what a server answers that knows
//! nothing, but for the date.
#![no_main]

use nodegate_fuzz::{app, exchange, facts, run, selector};
use nodegate_readiness::ConditionStatus;
use nodegate_server::App;
use nodegate_server::fuzzing::HttpServer;
use std::cell::OnceCell;
use std::sync::Arc;

thread_local!(static APP: OnceCell<Arc<App>> = const { OnceCell::new() });

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // What is taught, and what is asked then: the same, and something that may be nearly the same.
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

/// Whether it is an answer that is another each time.
fn tells_time(answer: &[u8]) -> bool {
    let has = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
    has(b"uptime_ms") || has(b"process_cpu") || has(b"<!doctype") || has(b"start_id") || has(b"Retry-After")
}

fn undated(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}
