//! A watch's bytes in any chunks: whole lines pass, wherever they are cut, and no event comes from a broken
//! line.
#![no_main]

use bytes::Bytes;
use nodegate_fuzz::run;
use nodegate_node_watch::fuzzing;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((size, body)) = data.split_first() else { return };
    let size = usize::from(*size) + 1;
    let chunks: Vec<&[u8]> = body.chunks(size).collect();
    let whole = fuzzing::scan(&chunks);
    assert_eq!(whole, fuzzing::scan(&[body]), "the chunks make no difference");
    let (lines, rest) = match body.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => (&body[..end], &body[end + 1..]),
        None => (&body[..0], body),
    };
    let json = |line: &[u8]| serde_json::from_slice::<Value>(line).is_ok();
    if lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).all(json) {
        assert!(whole, "every line is JSON");
    }
    let chunks = chunks.into_iter().map(Bytes::copy_from_slice).collect();
    let seen = run(fuzzing::watch(chunks));
    if !whole {
        assert!(seen.is_err(), "a broken line ends the watch");
    }
    if let Ok(seen) = seen {
        let events = lines.split(|byte| *byte == b'\n').chain([rest]).filter(|line| json(line)).count();
        assert!(seen.len() <= events, "{} events of {events} lines", seen.len());
    }
});
