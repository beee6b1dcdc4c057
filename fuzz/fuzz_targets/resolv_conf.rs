//! A `resolv.conf`: at most three nameservers, each from a line of its own, none twice.
#![no_main]

use nodegate_local_checks::fuzzing::network::nameservers;
use std::net::IpAddr;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let found = nameservers(file);
    let shown: Vec<&String> = found.iter().map(|(shown, _)| shown).collect();
    assert!(found.len() <= 3);
    let mut expected: Vec<String> = Vec::new();
    for line in file.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["nameserver", word, ..] = words.as_slice() else { continue };
        let (address, scope) =
            word.split_once('%').map_or((*word, None), |(address, scope)| (address, Some(scope)));
        // Other forms of IPv4 have no second parser here.
        let Ok(ip) = address.parse::<IpAddr>() else {
            if address.starts_with(|first: char| first.is_ascii_digit()) {
                return;
            }
            continue;
        };
        let text = scope.map_or(ip.to_string(), |scope| format!("{ip}%{scope}"));
        if !expected.contains(&text) {
            expected.push(text);
        }
    }
    if expected.is_empty() {
        expected.push("127.0.0.1".to_owned());
    }
    expected.truncate(3);
    assert_eq!(shown, expected.iter().collect::<Vec<_>>());
    for (shown, address) in &found {
        assert!(!shown.contains(|c: char| c.is_ascii_whitespace()));
        match address {
            Ok(address) => assert_eq!(address.port(), 53),
            Err(_) => assert!(shown.contains('%'), "only an interface can be unknown: {shown}"),
        }
    }
});
