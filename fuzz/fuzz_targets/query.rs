//! The query of `/health`: parsing has limits and equals an independent parser, and the answer is JSON.
#![no_main]

use nodegate_fuzz::{ask, board, catalog, check_reply, now};
use nodegate_readiness::query::{MAX_NAMES, MAX_QUERY};
use nodegate_readiness::{CheckRef, Query};
use percent_encoding::percent_decode_str;

libfuzzer_sys::fuzz_target!(|raw: &str| {
    let catalog = catalog();
    let parsed = Query::parse(raw, &catalog);
    assert_eq!(parsed, Query::parse(raw, &catalog));
    let names = names(raw);
    match &parsed {
        Ok(query) => {
            assert!(raw.len() <= MAX_QUERY && query.checks.len() <= MAX_NAMES);
            let read: Vec<String> = query
                .checks
                .iter()
                .map(|check| match check {
                    CheckRef::Known(id) => catalog.name(*id).to_owned(),
                    CheckRef::Unknown(name) => name.clone(),
                })
                .collect();
            assert_eq!(read, names);
            assert!(query.drain.is_none_or(|code| (200..=599).contains(&code)));
        }
        Err(_) => assert!(raw.len() > MAX_QUERY || names.len() > MAX_NAMES || raw.contains("drain")),
    }
    match (parsed, ask(&board(), raw, now())) {
        (Err(_), reply) => assert_eq!(reply, None),
        (Ok(query), reply) => {
            let reply = reply.expect("an answer");
            let json = check_reply(&reply);
            let count = query.checks.len().max(1);
            assert_eq!(json["checks"].as_array().map(Vec::len), Some(count));
            assert!(query.all_known() || reply.status == 503);
        }
    }
});

/// Parses the names of a query independently: percent-decoded, without empty ones, repeated ones once.
fn names(raw: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for pair in raw.split('&') {
        let Some(value) = pair.strip_prefix("check=") else { continue };
        for name in percent_decode_str(value).decode_utf8_lossy().split(',') {
            let name = name.trim().to_owned();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
