//! Names that stand for several addresses, and whose addresses change.

use std::future::Future;
use std::net::TcpListener;
use std::sync::mpsc::channel;

use super::*;
use gpusize_load::pace::sleep_until;

fn listeners(n: usize) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    let all: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses = all.iter().map(|l| l.local_addr().expect("an address")).collect();
    (all, addresses)
}

/// What the resolver says; one test of this thread at a time.
fn name_of(addresses: &[SocketAddr]) -> Name {
    thread_local!(static FOUND: Mutex<Vec<SocketAddr>> = const { Mutex::new(Vec::new()) });
    FOUND.with(|found| *lock(found) = addresses.to_vec());
    Name::by("pods.example", 80, |_, _| Ok(FOUND.with(|found| lock(found).clone()))).expect("a name")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Connect so often, and let all connections be open; says how many each address has.
fn connect(name: &Name, times: usize) -> Vec<u64> {
    let before = Before::new();
    for _ in 0..times {
        let (_, address) = block_on(name.connect(&Sources::default(), sleep_until)).expect("a connection");
        address.opened();
    }
    name.used(0, &before).iter().map(|used| used.connections).collect()
}

#[test]
fn connections_go_to_all_addresses_of_a_name_in_turn() {
    let (_kept, addresses) = listeners(3);
    assert_eq!(connect(&name_of(&addresses), 12), [4, 4, 4]);
}

#[test]
fn an_address_that_refuses_is_passed_over_and_tried_last_from_then_on() {
    let (mut kept, addresses) = listeners(3);
    drop(kept.remove(1));
    let name = name_of(&addresses);
    let used = connect(&name, 30);
    assert_eq!((used[1], used[0] + used[2]), (0, 30));
    assert!(used[0] >= 10 && used[2] >= 10, "{used:?}");
    let sockets: Vec<_> = name.in_turn().iter().map(|address| address.socket).collect();
    assert_eq!(sockets[2], addresses[1]);
}

#[test]
fn where_nobody_listens_the_last_address_says_why() {
    let (kept, addresses) = listeners(2);
    drop(kept);
    let refused = block_on(name_of(&addresses).connect(&Sources::default(), sleep_until));
    assert_eq!(refused.map(drop).map_err(|e| e.kind()), Err(io::ErrorKind::ConnectionRefused));
}

#[test]
fn a_name_that_is_resolved_again_has_its_new_addresses_and_counts_on() {
    let (_kept, addresses) = listeners(3);
    let name = name_of(&addresses[..2]);
    assert_eq!(connect(&name, 4), [2, 2]);
    let before = name.before(0);
    name.set(&addresses[1..]);
    assert_eq!(connect(&name, 4), [4, 2, 2], "those found now, and after them the one that is still connected to");
    let used = name.used(0, &before);
    assert_eq!(used.iter().map(|used| used.connections).collect::<Vec<_>>(), [4, 2, 2]);
    // The former one's connections are closed before another level begins: it has no part in that.
    lock(&name.former)[0].closed();
    lock(&name.former)[0].closed();
    let used = name.used(0, &name.before(0));
    let told: Vec<_> = used.iter().map(|used| (used.address.clone(), used.connections)).collect();
    assert_eq!(told, [(addresses[1].to_string(), 4), (addresses[2].to_string(), 2)]);
}

#[test]
fn a_connect_that_fails_has_the_name_resolved_again() {
    let (kept, addresses) = listeners(1);
    drop(kept);
    let name = name_of(&addresses);
    let (sender, asked) = sync_channel(1);
    *lock(&name.resolver) = Some(sender);
    block_on(name.connect(&Sources::default(), sleep_until)).map(drop).expect_err("nobody listens");
    assert!(asked.try_recv().is_ok());
    // And whoever hears it resolves, until the last name is gone.
    let (ask, asked) = sync_channel(1);
    let (resolved, heard) = channel();
    let thread = std::thread::spawn(move || {
        resolve_when_asked(&asked, Duration::ZERO, || resolved.send(()).expect("the test listens"));
    });
    ask.send(()).expect("it listens");
    heard.recv_timeout(Duration::from_secs(60)).expect("the name was resolved");
    drop(ask);
    thread.join().expect("it ends");
}

#[test]
fn names_are_resolved_again_every_so_often_and_numbers_are_not() {
    let (ask, asked) = sync_channel::<()>(1);
    let (resolved, heard) = channel();
    let thread = std::thread::spawn(move || {
        resolve_when_asked(&asked, Duration::from_millis(1), || {
            let _ = resolved.send(());
        });
    });
    heard.recv_timeout(Duration::from_secs(60)).expect("the name was resolved without a failure");
    drop(ask);
    thread.join().expect("it ends");
    assert!(!Name::new("127.0.0.1", 80).expect("an address").is_name());
    assert!(Name::by("", 80, |_, _| Ok(Vec::new())).is_err(), "a name without an address");
}
