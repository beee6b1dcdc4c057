use super::*;
use std::time::Duration;

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(seconds))
}

fn table(connections: usize) -> Arc<Connections> {
    let limits = Limits { connections, ..Limits::default() };
    Arc::new(Connections::new(limits, Arc::default()))
}

fn enter(table: &Arc<Connections>, now: Moment) -> (Arc<Activity>, ConnectionSlot) {
    let activity = Arc::new(Activity::new(now));
    let slot = table.enter(Arc::clone(&activity)).unwrap();
    (activity, slot)
}

fn holds(table: &Connections, slot: &ConnectionSlot) -> bool {
    table.table().entries.contains_key(&slot.key)
}

#[test]
fn the_oldest_idle_is_evicted_and_a_busy_one_never() {
    let table = table(3);
    let (busy, a) = enter(&table, at(1));
    let (kept, b) = enter(&table, at(2));
    let (_silent, c) = enter(&table, at(3));
    busy.begin();
    kept.end(at(4), false);
    let (newest, d) = enter(&table, at(5));
    assert!(holds(&table, &a) && holds(&table, &b) && !holds(&table, &c) && holds(&table, &d));
    kept.begin();
    newest.begin();
    assert!(table.enter(Arc::new(Activity::new(at(6)))).is_none(), "all are busy");
}

#[test]
fn a_flood_of_one_kind_leaves_the_other_alone() {
    let table = table(4);
    let (kept, a) = enter(&table, at(1));
    kept.end(at(1), false);
    let silent: Vec<_> = (2..20).map(|second| enter(&table, at(second))).collect();
    assert!(holds(&table, &a), "it is the oldest of all, and it had an answer");
    assert_eq!(table.table().entries.len(), 4);
    drop(silent);

    let (_new, b) = enter(&table, at(20));
    let spoken: Vec<_> = (21..40)
        .map(|second| {
            let (activity, slot) = enter(&table, at(second));
            activity.end(at(second), false);
            slot
        })
        .collect();
    assert!(holds(&table, &b), "it is the oldest of all, and has yet to speak");
    assert!(!holds(&table, &a), "it was silent for longer than others of its kind");
    drop(spoken);
}

#[test]
fn who_has_spoken_since_the_last_look_is_not_evicted() {
    let table = table(48);
    let mut slots: Vec<_> = (0..48).map(|second| enter(&table, at(second))).collect();
    // A look finds three: 0, 1 and 2.
    let _a = enter(&table, at(48));
    slots[1].0.end(at(49), false);
    slots[2].0.begin();
    let _b = enter(&table, at(50));
    let left = |number: usize| holds(&table, &slots[number].1);
    assert_eq!([0, 1, 2, 3, 4].map(left), [false, true, true, false, true]);
    drop(slots.remove(4));
    // What is gone is no room twice.
    let _c = enter(&table, at(51));
    let _d = enter(&table, at(52));
    assert_eq!(table.table().entries.len(), 48);
    assert!(!holds(&table, &slots[4].1), "it was connected at 5");
}

#[test]
fn a_late_head_is_swept_and_a_kept_connection_is_not() {
    let table = table(3);
    let (_silent, a) = enter(&table, at(0));
    let (kept, b) = enter(&table, at(0));
    kept.end(at(1), false);
    table.sweep(at(5));
    assert!(holds(&table, &a));
    table.sweep(at(6));
    assert!(!holds(&table, &a) && holds(&table, &b));

    // A second request that drips in is timed from when it was first seen, not from the last answer.
    kept.received();
    table.sweep(at(40));
    assert!(holds(&table, &b));
    kept.end(at(42), false);
    kept.received();
    table.sweep(at(46));
    table.sweep(at(51));
    assert!(holds(&table, &b));
    table.sweep(at(52));
    assert!(!holds(&table, &b));
}

#[test]
fn nobody_enters_after_the_end() {
    let table = table(3);
    let (_open, a) = enter(&table, at(0));
    assert_eq!(table.close_all(), 1);
    assert!(table.enter(Arc::new(Activity::new(at(1)))).is_none());
    drop(a);
    assert!(table.is_empty());
}

#[test]
fn idle_connections_are_kept_for_the_idle_timeout() {
    let table = table(3);
    let (kept, a) = enter(&table, at(0));
    kept.end(at(1), false);
    table.sweep(at(76));
    assert!(holds(&table, &a));
    table.sweep(at(77));
    assert!(!holds(&table, &a));
    drop(a);
    assert!(table.is_empty());
}
