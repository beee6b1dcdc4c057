use super::*;
use std::net::Ipv4Addr;
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn table(connections: usize) -> Arc<Connections> {
    let limits = Limits { connections, ..Limits::default() };
    Arc::new(Connections::new(limits, ConnectionCounts::default()))
}

fn enter(table: &Arc<Connections>) -> ConnectionSlot {
    table.enter(CLIENT).unwrap()
}

/// Enters, and gets an answer.
fn enter_from(table: &Arc<Connections>, client: [u8; 4]) -> ConnectionSlot {
    let slot = table.enter(client.into()).unwrap();
    slot.activity.end(false);
    slot
}

fn holds(table: &Connections, slot: &ConnectionSlot) -> bool {
    table.table().entries.contains_key(&slot.key)
}

#[test]
fn the_oldest_idle_is_evicted_and_a_busy_one_is_not() {
    let table = table(3);
    let [busy, kept, silent] = [(); 3].map(|()| enter(&table));
    busy.activity.begin();
    kept.activity.end(false);
    let newest = enter(&table);
    assert!(holds(&table, &busy) && holds(&table, &kept) && !holds(&table, &silent));
    kept.activity.begin();
    newest.activity.begin();
    assert!(table.enter(CLIENT).is_none(), "all are busy");
}

#[test]
fn a_flood_of_one_kind_leaves_the_other_alone() {
    let table = table(4);
    let kept = enter_from(&table, [127, 0, 0, 1]);
    let silent: Vec<_> = (2..20).map(|_| enter(&table)).collect();
    assert!(holds(&table, &kept), "it is the oldest of all, and it had an answer");
    assert_eq!(table.table().entries.len(), 4);
    drop(silent);

    let new = enter(&table);
    let spoken: Vec<_> = (21..40).map(|_| enter_from(&table, [127, 0, 0, 1])).collect();
    assert!(holds(&table, &new), "it is the oldest of all, and has yet to speak");
    assert!(!holds(&table, &kept), "it was silent for longer than others of its kind");
    drop(spoken);
}

#[test]
fn a_client_active_since_the_last_search_is_not_evicted() {
    let table = table(48);
    let mut slots: Vec<_> = (0..48).map(|_| enter(&table)).collect();
    // One search finds three: 0, 1 and 2.
    let _a = enter(&table);
    slots[1].activity.end(false);
    slots[2].activity.begin();
    let _b = enter(&table);
    let left = |number: usize| holds(&table, &slots[number]);
    assert_eq!([0, 1, 2, 3, 4].map(left), [false, true, true, false, true]);
    drop(slots.remove(4));
    // A connection that has gone does not make room twice.
    let _c = enter(&table);
    let _d = enter(&table);
    assert_eq!(table.table().entries.len(), 48);
    assert!(!holds(&table, &slots[4]), "it was the sixth to connect");
}

#[test]
fn the_client_with_most_connections_makes_room() {
    let table = table(64);
    let balancers: Vec<_> = (1..=4).map(|host| enter_from(&table, [10, 0, 0, host])).collect();
    let flood: Vec<_> = (0..500).map(|_| enter_from(&table, [10, 0, 1, 1])).collect();
    assert!(balancers.iter().all(|slot| holds(&table, slot)), "they were idle for longest");
    let newest = enter_from(&table, [10, 0, 2, 1]);
    assert!(holds(&table, &newest) && balancers.iter().all(|slot| holds(&table, slot)));
    assert_eq!(table.table().entries.len(), 64);
    // A client with as many connections is the next to make room.
    let more: Vec<_> = (0..40).map(|_| enter_from(&table, [10, 0, 3, 1])).collect();
    let held = |slots: &[ConnectionSlot]| slots.iter().filter(|slot| holds(&table, slot)).count();
    assert!(held(&flood).abs_diff(held(&more)) <= 4, "{} and {}", held(&flood), held(&more));
    assert!(balancers.iter().all(|slot| holds(&table, slot)));
}

#[test]
fn a_client_whose_connections_are_all_busy_lets_the_next_one_make_room() {
    let table = table(30);
    let busy: Vec<_> = (0..20).map(|_| enter_from(&table, [10, 0, 0, 1])).collect();
    for slot in &busy {
        slot.activity.begin();
    }
    let idle: Vec<_> = (0..10).map(|_| enter_from(&table, [10, 0, 0, 2])).collect();
    let newest = enter_from(&table, [10, 0, 0, 3]);
    assert!(holds(&table, &newest) && !holds(&table, &idle[0]) && holds(&table, &idle[1]));
}

#[test]
fn busy_connections_yield_only_to_a_client_with_far_fewer() {
    let table = table(20);
    let busy: Vec<_> = (0..20).map(|_| enter_from(&table, [10, 0, 0, 1])).collect();
    for slot in &busy {
        slot.activity.begin();
    }
    assert!(table.enter([10, 0, 0, 1].into()).is_none(), "no place for one more of its own");
    let other: Vec<_> = (0..20)
        .map_while(|_| table.enter([10, 0, 0, 2].into()).inspect(|slot| _ = slot.activity.begin()))
        .collect();
    assert!((5..=10).contains(&other.len()), "{}", other.len());
    assert!(!holds(&table, &busy[0]) && holds(&table, &busy[19]), "the oldest first");
}

#[test]
fn a_flood_from_many_addresses_has_no_owner() {
    let table = table(100);
    let balancer: Vec<_> = (0..3).map(|_| enter_from(&table, [10, 0, 0, 1])).collect();
    let flood: Vec<_> = (0..250_u8)
        .map(|n| {
            for slot in &balancer {
                slot.activity.end(false);
            }
            enter_from(&table, [10, 1, 0, n])
        })
        .collect();
    assert!(balancer.iter().all(|slot| holds(&table, slot)), "it holds most, and was busy last");
    drop(flood);
}

#[test]
fn a_late_head_is_swept_and_a_kept_connection_is_not() {
    let table = table(3);
    let start = Instant::now();
    let sweep = |seconds| table.sweep(start + Duration::from_secs(seconds));
    let (silent, kept) = (enter(&table), enter_from(&table, [127, 0, 0, 1]));
    sweep(0);
    sweep(5);
    assert!(holds(&table, &silent));
    sweep(6);
    assert!(!holds(&table, &silent) && holds(&table, &kept));

    // A second request that drips in is timed from when the sweep first sees it, not from the last answer.
    kept.activity.received(b"G");
    sweep(40);
    assert!(holds(&table, &kept));
    kept.activity.end(false);
    kept.activity.received(b"G");
    sweep(46);
    kept.activity.received(b"E");
    sweep(51);
    assert!(holds(&table, &kept));
    sweep(52);
    assert!(!holds(&table, &kept));
}

#[test]
fn an_unread_answer_ends_its_connection_and_a_slow_reader_stays() {
    let table = table(3);
    let start = Instant::now();
    let sweep = |seconds| table.sweep(start + Duration::from_secs(seconds));
    let [unresponsive, slow] = [(); 2].map(|()| enter_from(&table, [127, 0, 0, 1]));
    unresponsive.activity.block();
    slow.activity.block();
    for second in 1..=6 {
        sweep(second);
        slow.activity.unblock();
        slow.activity.block();
        assert!(holds(&table, &unresponsive), "{second}");
    }
    sweep(7);
    assert!(!holds(&table, &unresponsive) && holds(&table, &slow));
    // A client that reads again gets the full time again.
    slow.activity.unblock();
    sweep(8);
    slow.activity.block();
    sweep(20);
    assert!(holds(&table, &slow));
}

#[test]
fn idle_connections_are_kept_for_the_idle_timeout_and_busy_ones_forever() {
    let table = table(3);
    let start = Instant::now();
    let [kept, busy] = [(); 2].map(|()| enter_from(&table, [127, 0, 0, 1]));
    busy.activity.begin();
    for (seconds, left) in [(1, true), (76, true), (77, false)] {
        table.sweep(start + Duration::from_secs(seconds));
        assert_eq!(holds(&table, &kept), left, "{seconds}");
    }
    table.sweep(start + Duration::from_hours(1));
    assert!(holds(&table, &busy));
    drop((kept, busy));
    assert!(table.is_empty());
}

#[test]
fn a_connection_is_counted_once_however_it_ends() {
    let counts = ConnectionCounts::default();
    let table = Arc::new(Connections::new(Limits::default(), counts.clone()));
    let slot = enter(&table);
    assert_eq!(counts.open.get(), 1);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _slot = slot;
        panic!("as the test wants it");
    }));
    assert!(panics.is_err() && table.is_empty());
    let slot = enter(&table);
    table.close_all();
    drop(slot);
    assert_eq!(counts.open.get(), 0);
    assert!(table.enter(CLIENT).is_none(), "no connection enters after the end");
}
