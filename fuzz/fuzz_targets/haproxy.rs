//! HAProxy's output about its servers, and users' annotations.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_haproxy::fuzzing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, text)) = selector(data) else { return };
    let text = String::from_utf8_lossy(text);
    let is_read = if which % 5 == 0 { fuzzing::states(&text) } else { fuzzing::annotation(&text) };
    assert!(is_read, "{text:?}");
});
