//! Answers of a container runtime: any frame.
#![no_main]

use nodegate_fuzz::check_outcome;
use nodegate_local_checks::fuzzing::runtime_frame;
use nodegate_readiness::{Outcome, Verdict};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let outcome = match which % 2 {
        0 => runtime_frame(bytes),
        _ => {
            let length = u32::try_from(bytes.len()).expect("inputs are short").to_be_bytes();
            let outcome = runtime_frame(&[&[0][..], &length, bytes].concat());
            // A frame with further bytes, or an incomplete frame, is not an answer.
            let longer = runtime_frame(&[&[0][..], &length, bytes, &[0]].concat());
            assert_eq!(longer, Outcome::fail("MalformedAnswer"));
            outcome
        }
    };
    check_outcome(&outcome);
    if outcome.verdict() == Verdict::Ready {
        let says = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
        assert!(says(b"RuntimeReady") && says(b"NetworkReady"), "it must have said so");
    }
    assert_ne!(outcome.verdict(), Verdict::Draining);
});
