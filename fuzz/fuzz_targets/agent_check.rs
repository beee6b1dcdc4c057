//! Agent checks: for any `agent-send` and any reason, the answer is one line with the verdict.
#![no_main]

use nodegate_fuzz::{app, exchange, facts, run, selector};
use nodegate_readiness::ConditionStatus;
use nodegate_server::fuzzing::serve_agent_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = selector(data) else { return };
    let (said, reason) = bytes.split_at(bytes.len() / 2);
    let reason = String::from_utf8_lossy(reason);
    let (status, cordoned) = match which % 3 {
        0 => (ConditionStatus::True, false),
        1 => (ConditionStatus::True, true),
        _ => (ConditionStatus::False, false),
    };
    let mut node = facts(status, &reason);
    node.unschedulable = cordoned;
    let line = run(exchange(said, |socket| serve_agent_check(app(node), socket)));
    let line = String::from_utf8(line).expect("a line is text");
    assert_eq!(line.chars().filter(|c| c.is_control()).collect::<String>(), "\n", "one line: {line:?}");
    assert!(line.ends_with('\n') && line.chars().count() < 120, "{line:?}");
    match (status, cordoned) {
        (ConditionStatus::True, false) => assert_eq!(line, "up ready\n"),
        (ConditionStatus::True, true) => assert_eq!(line, "up drain\n"),
        _ => assert!(line.starts_with("down #"), "{line:?}"),
    }
});
