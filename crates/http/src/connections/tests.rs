use super::*;
use futures::poll;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

const CLIENT: &str = "10.0.0.1";
const LOOPBACK: &str = "127.0.0.1";

fn table(connections: usize) -> Arc<Connections> {
    let limits = Limits { connections, ..Limits::default() };
    let known = KnownClients::default();
    known.set("192.0.2.1".parse().unwrap());
    Arc::new(Connections::new(limits, known, ConnectionCounts::default()))
}

async fn slot(table: &Arc<Connections>, client: &str, is_crowded: bool) -> Option<Place> {
    let address: IpAddr = client.parse().unwrap();
    table.enter(Client { address, on_this_node: address.is_loopback() }, is_crowded).await
}

/// A connection, whose task ends with the runtime's next turn after it was closed.
fn serve(table: &Connections, slot: Place) -> u64 {
    let key = slot.key;
    let task = tokio::spawn(async move {
        let _slot = slot;
        pending::<()>().await;
    });
    table.set_task(key, task.abort_handle());
    key
}

/// Enters, and gets an answer.
async fn enter(table: &Arc<Connections>, client: &str) -> u64 {
    let slot = slot(table, client, false).await.unwrap();
    slot.activity.end(false);
    serve(table, slot)
}

/// Enters once from each of these addresses.
async fn enter_all(table: &Arc<Connections>, clients: impl IntoIterator<Item = String>) -> Vec<u64> {
    let mut keys = Vec::new();
    for client in clients {
        keys.push(enter(table, &client).await);
    }
    keys
}

fn times(count: usize, client: &str) -> impl Iterator<Item = String> {
    std::iter::repeat_n(client.to_owned(), count)
}

fn activity(table: &Connections, key: u64) -> Arc<Activity> {
    Arc::clone(&table.table().entries[&key].activity)
}

/// Returns true if the connection was not closed.
fn holds(table: &Connections, key: u64) -> bool {
    table.table().entries.get(&key).is_some_and(Entry::is_open)
}

fn held(table: &Connections, keys: &[u64]) -> usize {
    keys.iter().filter(|key| holds(table, **key)).count()
}

fn address(network: usize, host: usize) -> String {
    format!("10.{network}.{}.{}", host / 250, host % 250 + 1)
}

#[tokio::test]
async fn a_place_is_free_when_the_task_is_gone_and_not_before() {
    // Strangers have one of two.
    let table = table(2);
    let first = enter(&table, "10.0.0.1").await;
    let mut second = pin!(slot(&table, "10.0.0.2", false));
    assert!(poll!(&mut second).is_pending() && !holds(&table, first), "its task has not ended");
    assert_eq!(table.table().entries.len(), 1);
    let second = second.await.unwrap();
    assert_eq!(table.table().entries.len(), 1);
    drop(second);
    assert!(table.is_empty());
}

#[tokio::test]
async fn the_limit_holds_whatever_comes() {
    let table = table(64);
    for host in 0..1000 {
        enter(&table, &address(host % 7, host * 3 % 40)).await;
        enter(&table, if host % 2 == 0 { LOOPBACK } else { "192.0.2.1" }).await;
        assert!(table.table().entries.len() <= 64);
    }
    assert_eq!(table.table().open(false).count(), 32);
}

#[tokio::test]
async fn known_clients_have_places_that_no_stranger_takes() {
    let table = table(64);
    let known = [enter(&table, LOOPBACK).await, enter(&table, "192.0.2.1").await];
    let flood = || (0..200).map(|host| address(1, host));
    enter_all(&table, flood()).await;
    assert_eq!(held(&table, &known), 2, "they were idle for longest");
    assert_eq!(table.table().open(false).count(), 32);
    // A pod's hook becomes known, and then holds on as well.
    let hook = enter(&table, "10.9.0.1").await;
    table.make_known(|key, _| key == hook);
    enter_all(&table, flood()).await;
    assert!(holds(&table, hook));
    let kept = enter(&table, "10.9.0.2").await;
    table.known.set("10.9.0.2".parse().unwrap());
    table.sweep(Instant::now());
    enter_all(&table, flood()).await;
    assert!(holds(&table, kept), "it became known after it had connected");
}

#[tokio::test]
async fn a_stranger_gets_one_answer_while_places_are_scarce() {
    let table = table(64);
    let is_pressed = async |client| slot(&table, client, false).await.unwrap().is_pressed;
    assert!(!is_pressed(CLIENT).await);
    enter_all(&table, (0..25).map(|host| address(1, host))).await;
    assert!(is_pressed(CLIENT).await, "more than three quarters of 32 places are taken");
    assert!(!is_pressed("192.0.2.1").await && !is_pressed(LOOPBACK).await);
}

#[tokio::test]
async fn the_client_that_holds_most_loses_one_whatever_it_does() {
    let table = table(64);
    let few = enter_all(&table, (0..4).map(|host| address(1, host))).await;
    let busy = enter_all(&table, times(60, CLIENT)).await;
    for key in busy.iter().filter(|key| holds(&table, **key)) {
        activity(&table, *key).begin();
    }
    let newest = enter(&table, "10.2.0.1").await;
    assert!(holds(&table, newest) && held(&table, &few) == 4, "they were idle for longest, and none is busy");
    assert_eq!(held(&table, &busy), 27);
}

#[tokio::test]
async fn of_one_client_the_idlest_goes_first() {
    let table = table(6);
    let keys = enter_all(&table, times(3, CLIENT)).await;
    activity(&table, keys[0]).end(false);
    activity(&table, keys[1]).begin();
    enter(&table, CLIENT).await;
    let left: Vec<_> = keys.iter().map(|key| holds(&table, *key)).collect();
    assert_eq!(left, [true, true, false]);
}

#[tokio::test]
async fn many_strangers_with_one_connection_each_take_turns() {
    let table = table(64);
    let keys = enter_all(&table, (0..100).map(|host| address(1, host))).await;
    assert_eq!(held(&table, &keys[68..]), 32, "those that came first have had their time");
}

#[tokio::test]
async fn a_host_with_many_ipv6_addresses_holds_no_more_than_one_with_one() {
    let table = table(64);
    let balancer = enter(&table, "fd00::1").await;
    let neighbour = enter(&table, "fd00:0:0:1::1").await;
    let host = enter_all(&table, (2..60).map(|n| format!("fd00::{n}"))).await;
    assert!(holds(&table, neighbour) && held(&table, &host) == 31, "the network holds most");
    assert!(!holds(&table, balancer), "each address of the network holds one");
    let balancer = enter(&table, "fd00::1").await;
    enter_all(&table, times(60, "fd00::2")).await;
    assert!(holds(&table, balancer), "in its network, another address holds more");
}

#[tokio::test]
async fn in_a_crowd_strangers_get_no_place_and_balancers_do() {
    let table = table(64);
    for (client, enters) in [(CLIENT, false), ("192.0.2.1", true), (LOOPBACK, true)] {
        assert_eq!(slot(&table, client, true).await.is_some(), enters, "{client}");
    }
    assert_eq!(table.counts.refused.get(), 1);
}

#[tokio::test]
async fn a_late_head_is_swept_and_a_kept_connection_is_not() {
    let table = table(16);
    let start = Instant::now();
    let sweep = |seconds| table.sweep(start + Duration::from_secs(seconds));
    let silent = serve(&table, slot(&table, CLIENT, false).await.unwrap());
    let key = enter(&table, CLIENT).await;
    let kept = activity(&table, key);
    sweep(0);
    sweep(5);
    assert!(holds(&table, silent));
    sweep(6);
    assert!(!holds(&table, silent) && holds(&table, key));

    // A second request that drips in is timed from when the sweep first sees it, not from the last answer.
    kept.received(b"G");
    sweep(40);
    assert!(holds(&table, key));
    kept.end(false);
    kept.received(b"G");
    sweep(46);
    kept.received(b"E");
    sweep(51);
    assert!(holds(&table, key));
    sweep(52);
    assert!(!holds(&table, key));
}

#[tokio::test]
async fn an_unread_answer_ends_its_connection_and_a_slow_reader_stays() {
    let table = table(16);
    let start = Instant::now();
    let sweep = |seconds| table.sweep(start + Duration::from_secs(seconds));
    let [unresponsive, slow] = [enter(&table, CLIENT).await, enter(&table, CLIENT).await];
    activity(&table, unresponsive).sent(true);
    let reads = activity(&table, slow);
    reads.sent(true);
    for second in 1..=6 {
        sweep(second);
        reads.sent(false);
        reads.sent(true);
        assert!(holds(&table, unresponsive), "{second}");
    }
    sweep(7);
    assert!(!holds(&table, unresponsive) && holds(&table, slow));
    // A client that reads again gets the full time again.
    reads.sent(false);
    sweep(8);
    reads.sent(true);
    sweep(20);
    assert!(holds(&table, slow));
}

#[tokio::test]
async fn idle_connections_are_kept_for_the_idle_timeout_and_busy_ones_forever() {
    let table = table(16);
    let start = Instant::now();
    let [kept, busy] = [enter(&table, CLIENT).await, enter(&table, CLIENT).await];
    activity(&table, busy).begin();
    for (seconds, left) in [(1, true), (76, true), (77, false)] {
        table.sweep(start + Duration::from_secs(seconds));
        assert_eq!(holds(&table, kept), left, "{seconds}");
    }
    table.sweep(start + Duration::from_hours(1));
    assert!(holds(&table, busy));
}

#[tokio::test]
async fn a_connection_is_counted_once_however_it_ends() {
    let table = table(16);
    let open = || table.counts.open.get();
    let slot = slot(&table, CLIENT, false).await.unwrap();
    assert_eq!(open(), 1);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _slot = slot;
        panic!("as the test wants it");
    }));
    assert!(panics.is_err() && table.is_empty());
    enter(&table, CLIENT).await;
    assert_eq!((table.close_all(), open()), (1, 1));
    table.emptied().await;
    assert_eq!(open(), 0);
}
