use super::*;
use std::net::Ipv4Addr;
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(seconds))
}

fn table(connections: usize) -> Arc<Connections> {
    let limits = Limits { connections, ..Limits::default() };
    Arc::new(Connections::new(limits, Arc::default()))
}

fn enter(table: &Arc<Connections>, now: Moment) -> (Arc<Activity>, ConnectionSlot) {
    let activity = Arc::new(Activity::new(now));
    let slot = table.open().enter(CLIENT, Arc::clone(&activity)).unwrap();
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
    assert!(table.open().enter(CLIENT, Arc::new(Activity::new(at(6)))).is_none(), "all are busy");
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
    // One search finds three: 0, 1 and 2.
    let _a = enter(&table, at(48));
    slots[1].0.end(at(49), false);
    slots[2].0.begin();
    let _b = enter(&table, at(50));
    let left = |number: usize| holds(&table, &slots[number].1);
    assert_eq!([0, 1, 2, 3, 4].map(left), [false, true, true, false, true]);
    drop(slots.remove(4));
    // A connection that has gone does not make room twice.
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

    // A second request that drips in is timed from when the sweep first sees it, not from the last answer.
    kept.received(b"G");
    table.sweep(at(40));
    assert!(holds(&table, &b));
    kept.end(at(42), false);
    kept.received(b"G");
    table.sweep(at(46));
    table.sweep(at(51));
    assert!(holds(&table, &b));
    table.sweep(at(52));
    assert!(!holds(&table, &b));
}

fn enter_from(table: &Arc<Connections>, client: [u8; 4], now: Moment) -> (Arc<Activity>, ConnectionSlot) {
    let activity = Arc::new(Activity::new(now));
    activity.end(now, false);
    let slot = table.open().enter(client.into(), Arc::clone(&activity)).unwrap();
    (activity, slot)
}

#[test]
fn who_holds_most_makes_room() {
    let table = table(64);
    let balancers: Vec<_> = (1..=4).map(|host| enter_from(&table, [10, 0, 0, host], at(1))).collect();
    let flood: Vec<_> = (0..500).map(|n| enter_from(&table, [10, 0, 1, 1], at(2 + n))).collect();
    assert!(balancers.iter().all(|(_, slot)| holds(&table, slot)), "they were idle for longest");
    // Busy with short requests: the latest of all.
    let busy = enter_from(&table, [10, 0, 2, 1], at(1000));
    assert!(holds(&table, &busy.1) && balancers.iter().all(|(_, slot)| holds(&table, slot)));
    assert_eq!(table.table().entries.len(), 64);
    // A client with as many connections is the next to make room.
    let more: Vec<_> = (0..40).map(|n| enter_from(&table, [10, 0, 3, 1], at(2000 + n))).collect();
    let held = |slots: &[(Arc<Activity>, ConnectionSlot)]| {
        slots.iter().filter(|(_, slot)| holds(&table, slot)).count()
    };
    assert!(held(&flood).abs_diff(held(&more)) <= 4, "{} and {}", held(&flood), held(&more));
    assert!(balancers.iter().all(|(_, slot)| holds(&table, slot)));
}

#[test]
fn a_client_whose_connections_are_all_busy_lets_the_next_one_make_room() {
    let table = table(30);
    let busy: Vec<_> = (0..20).map(|_| enter_from(&table, [10, 0, 0, 1], at(1))).collect();
    for (activity, _) in &busy {
        activity.begin();
    }
    let idle: Vec<_> = (0..10).map(|n| enter_from(&table, [10, 0, 0, 2], at(2 + n))).collect();
    let newest = enter_from(&table, [10, 0, 0, 3], at(50));
    assert!(holds(&table, &newest.1) && !holds(&table, &idle[0].1) && holds(&table, &idle[1].1));
}

#[test]
fn a_flood_from_many_addresses_is_nobodys() {
    let table = table(100);
    let balancer: Vec<_> = (0..3).map(|_| enter_from(&table, [10, 0, 0, 1], at(1000))).collect();
    let flood: Vec<_> = (0..250_u8).map(|n| enter_from(&table, [10, 1, 0, n], at(n.into()))).collect();
    assert!(balancer.iter().all(|(_, slot)| holds(&table, slot)), "it holds most, and was busy last");
    drop(flood);
}

#[test]
fn who_does_not_read_is_cut_off_and_who_reads_slowly_is_not() {
    let table = table(3);
    let (deaf, a) = enter(&table, at(0));
    let (slow, b) = enter(&table, at(0));
    for activity in [&deaf, &slow] {
        activity.end(at(0), false);
        activity.block();
    }
    for second in 1..=6 {
        table.sweep(at(second));
        slow.unblock();
        slow.block();
        assert!(holds(&table, &a), "{second}");
    }
    table.sweep(at(7));
    assert!(!holds(&table, &a) && holds(&table, &b));
    // A client that reads again gets the full time again.
    slow.unblock();
    table.sweep(at(8));
    slow.block();
    table.sweep(at(20));
    assert!(holds(&table, &b));
}

#[test]
fn a_connection_is_counted_once_however_it_ends() {
    let metrics = Arc::<Metrics>::default();
    let table = Arc::new(Connections::new(Limits::default(), Arc::clone(&metrics)));
    let open = || metrics.connections();
    let opened = table.open();
    assert_eq!(open(), 1);
    let slot = opened.enter(CLIENT, Arc::new(Activity::new(at(1)))).unwrap();
    assert_eq!(open(), 1);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _slot = slot;
        panic!("as the test wants it");
    }));
    assert!(panics.is_err() && table.is_empty());
    let other = table.open();
    assert_eq!(open(), 1, "the end of the one that panicked is not counted twice");
    drop(other);
    assert_eq!(open(), 0);
}

#[test]
fn nobody_enters_after_the_end() {
    let table = table(3);
    let (_open, a) = enter(&table, at(0));
    assert_eq!(table.close_all(), 1);
    assert!(table.open().enter(CLIENT, Arc::new(Activity::new(at(1)))).is_none());
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
