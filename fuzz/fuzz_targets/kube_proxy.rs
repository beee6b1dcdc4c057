//! kube-proxy's answers: its JSON with any status.
#![no_main]

use nodegate_fuzz::check_outcome;
use nodegate_local_checks::fuzzing::kube_proxy_answer;
use nodegate_readiness::{Outcome, Verdict};
use serde::de::IgnoredAny;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let status = match which % 3 {
        0 => 200,
        1 => 503,
        _ => 100 + u16::from(*which),
    };
    let Some(outcome) = kube_proxy_answer(status, bytes) else { return };
    let again = kube_proxy_answer(status, bytes);
    assert_eq!(Some(&outcome), again.as_ref());
    check_outcome(&outcome);
    let is_json = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    assert!(is_json || outcome.verdict() == Verdict::NotReady, "no JSON, no health");
    let Ok(json @ Value::Object(_)) = serde_json::from_slice(bytes) else { return };
    // Repeated fields are refused, but `Value` keeps the last one.
    if outcome == Outcome::fail("MalformedJSON") {
        return;
    }
    match outcome.verdict() {
        Verdict::Ready => {
            assert!(status == 200 && json["healthy"] != false && json["nodeEligible"] != false);
            let families = json["status"].as_object().into_iter().flatten();
            assert!(families.into_iter().all(|(_, family)| family["healthy"] != false));
        }
        Verdict::Draining => assert!(json["nodeEligible"] == false && json["healthy"] != false),
        Verdict::NotReady => {}
    }
});
