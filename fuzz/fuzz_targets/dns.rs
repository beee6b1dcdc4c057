//! A nameserver's bytes: they are an answer only if their header says so.
#![no_main]

use nodegate_local_checks::fuzzing::dns_answer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let answer = dns_answer(bytes);
    assert_eq!(answer, dns_answer(bytes));
    if let Some(answer) = answer {
        assert!(bytes.len() >= 12 && bytes[2] & 0x80 != 0, "a response has a head, which says so");
        // NOERROR and NXDOMAIN. The upper bits of a code come only with EDNS.
        assert!(answer.is_err() || matches!(bytes[3] & 0x0f, 0 | 3));
        if let Err(reason) = answer {
            assert!(
                !reason.is_empty() && reason.len() < 100 && !reason.contains(char::is_control),
                "{reason:?}"
            );
        }
    }
});
