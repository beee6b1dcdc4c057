//! A watch's bytes in any chunks: whole lines pass, and no event comes from a broken line.
#![no_main]

use bytes::Bytes;
use futures::StreamExt;
use kube::api::{Api, WatchEvent, WatchParams};
use nodegate_fuzz::{client, run};
use nodegate_kube_follow::{WatchedNode, fuzzing};
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
    let seen = run(watch(chunks));
    if !whole {
        assert!(seen.is_err(), "a broken line ends the watch");
    }
    if let Ok(seen) = seen {
        let events = lines.split(|byte| *byte == b'\n').chain([rest]).filter(|line| json(line)).count();
        assert!(seen <= events, "{seen} events of {events} lines");
    }
});

/// Returns the number of events and bookmarks of a watch of Nodes, or the error that ended it.
async fn watch(chunks: Vec<Bytes>) -> Result<usize, kube::Error> {
    let api: Api<WatchedNode> = Api::all(client(chunks).await);
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), "0").await?);
    let mut seen = 0;
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(node) | WatchEvent::Modified(node) | WatchEvent::Deleted(node) => {
                drop(node.facts())
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
        seen += 1;
    }
    Ok(seen)
}
