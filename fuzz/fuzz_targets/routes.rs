//! The kernel's tables of routes, and rtnetlink's answers.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_local_checks::fuzzing::network::{default_routes, netlink};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = selector(data) else { return };
    if which % 3 == 2 {
        let (bodies, _) = netlink(bytes);
        let read: usize = bodies.iter().map(|(length, _)| length + 16).sum();
        assert!(read <= bytes.len(), "no byte is read twice, none that is not there");
        for (length, address) in &bodies {
            assert!(address.as_ref().is_none_or(|address| address.len() + 16 <= *length));
        }
        return;
    }
    let v6 = which % 3 == 1;
    let found = default_routes(bytes, v6);
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    assert!(found.len() <= lines.len());
    for (n, (hop, interface, metric)) in found.iter().enumerate() {
        assert!(!found[..n].contains(&found[n]), "none twice");
        assert_eq!(*metric, found[0].2, "all of the same rank");
        assert!(
            interface != "lo"
                && !interface.is_empty()
                && !interface.contains(|c: char| c.is_ascii_whitespace())
        );
        assert!(hop.is_none_or(|hop| hop.is_ipv6() == v6 && !hop.is_unspecified()));
    }
    // The order of lines does not change the routes, except for lines so long that they are read in parts.
    if lines.iter().all(|line| line.len() < 1000) {
        let mut reversed: Vec<&[u8]> = lines.clone();
        reversed.reverse();
        let mut again = default_routes(&reversed.join(&b'\n'), v6);
        let mut found = found;
        again.sort();
        found.sort();
        assert_eq!(found, again);
    }
});
