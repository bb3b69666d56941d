//! A greedy host doesn't lock out others: one host takes as much as it gets of each resource, and another
//! still gets an ordinary client's share.

use crate::common::{
    self, COURTESY, LEASE, LIMITS, Machine, begin, bounded, client_at, creation, host, leaked, named, open,
    request, root, wants,
};
use fairness::Peer;
use state::{
    ByteRange, ClientId, EngineLimits, Error, ExchangeId, LockKind, LockRequest, Locker, NoDelegation,
    SetClientId, StateId, Time,
};

const NOW: Time = Time(5000);
const GREEDY: Peer = host(1);
const MODEST: Peer = host(2);

/// Repeats a step until it is refused; the number of successes.
fn until_refused(mut step: impl FnMut(u32) -> Result<(), Error>) -> u32 {
    let mut done = 0;
    while step(done).is_ok() {
        done += 1;
        assert!(done < 100_000, "there is no limit");
    }
    done
}

fn lock_for(
    engine: &mut Machine,
    client: ClientId,
    open: StateId,
    key: &u32,
    owner: u32,
) -> Result<StateId, Error> {
    let (owner, range) = (owner.to_be_bytes(), ByteRange::of(u64::from(owner), 1).unwrap());
    let locker = Locker::New { open, owner: &owner };
    let (kind, reclaim, waits) = (LockKind::Write, false, false);
    let asked = LockRequest { by: leaked(client), key, locker, range, kind, reclaim, waits };
    let begun = engine.lock_begin(NOW, &asked)?.expect("no conflict");
    engine.lock_done(&begun, range, kind)
}

#[test]
fn confirmed_and_unconfirmed_clients() {
    for confirms in [false, true] {
        let mut engine = bounded(EngineLimits { clients: 100, ..LIMITS });
        let made = until_refused(|number| {
            let (name, peer) = (format!("greedy {number}"), GREEDY);
            let asked = ExchangeId { peer, ..named(&name, 1) };
            let made = engine.exchange_id(NOW, &asked)?;
            if confirms {
                engine.create_session(NOW, &creation(made.client, made.sequence))?;
            } else if engine.counts().0 < number as usize + 1 {
                // An older client of the same host was removed for it.
                return Err(Error::Delay);
            }
            Ok(())
        });
        assert!((45..=50).contains(&made), "{made} of 100");
        // Other hosts find room, and keep it.
        let modest: Vec<_> = (0..10)
            .map(|number| client_at(&mut engine, NOW, host(100 + number), &number.to_string()))
            .collect();
        let _ = engine.exchange_id(NOW, &ExchangeId { peer: GREEDY, ..named("once more", 1) });
        for (_, session) in modest {
            begin(&mut engine, NOW, session, 0, 1);
        }
        // Root of this host finds room when no other host does.
        for number in 1000..1200 {
            let name = number.to_string();
            let _ = engine.exchange_id(NOW, &ExchangeId { peer: host(number), ..named(&name, 1) });
        }
        client_at(&mut engine, NOW, Peer::Local(0), "root");
    }
}

/// In 4.0 an unconfirmed client costs an attacker one request only.
#[test]
fn unconfirmed_clients_of_many_hosts_are_removed_for_those_of_others() {
    let mut engine = bounded(EngineLimits { clients: 64, ..LIMITS });
    let set = |engine: &mut Machine, now, peer, name: &str| {
        let asked = SetClientId { owner: name.as_bytes(), peer, verifier: [1; 8], principal: &common::ROOT };
        engine.setclientid(now, &asked)
    };
    let two_each =
        (0..200).filter(|number| set(&mut engine, NOW, host(number / 2), &number.to_string()).is_ok());
    assert!(two_each.count() >= 62);
    assert_eq!(set(&mut engine, NOW, host(999), "soon").map(drop), Err(Error::Delay), "all are recent");
    let later = NOW.plus(LEASE / 16);
    for number in 0..8 {
        let (id, confirm) =
            set(&mut engine, later, host(1000 + number), &format!("modest {number}")).unwrap();
        engine.setclientid_confirm(later, id, confirm, &common::ROOT).unwrap();
    }
}

#[test]
fn states_and_ranges() {
    let mut engine = bounded(EngineLimits { states: 1000, all: 100, ..LIMITS });
    let [(greedy, _), (modest, _)] =
        [GREEDY, MODEST].map(|peer| client_at(&mut engine, NOW, peer, &peer.to_string()));
    let opens = until_refused(|file| engine.open(NOW, &open(greedy, "o", &file, 1, 0)).map(drop));
    assert!((45..=50).contains(&opens), "{opens} of 100");
    for file in 1000..1020 {
        engine.open(NOW, &open(modest, "o", &file, 3, 0)).unwrap();
    }
}

/// Each open file costs one, each lock owner on a file one, each delegation two.
#[test]
fn descriptors_are_shared_by_host() {
    let limits = EngineLimits {
        states: 1000,
        descriptors: 120,
        delegations: 1000,
        client_delegations: 1000,
        ..LIMITS
    };
    let mut engine = bounded(limits);
    let [(greedy, _), (modest, session)] =
        [GREEDY, MODEST].map(|peer| client_at(&mut engine, NOW, peer, &peer.to_string()));
    // Opens with a delegation each, as long as there are any, then opens alone.
    let mut delegated = 0;
    let opens = until_refused(|file| {
        engine.open(NOW, &open(greedy, "o", &file, 1, 0))?;
        match engine.delegate_begin(NOW, &wants(&root(greedy), &file, false)) {
            Ok(begun) => {
                engine.delegate_done(&begun).unwrap();
                delegated += 1;
            }
            Err(why) => assert_eq!(why, NoDelegation::Resource),
        }
        Ok(())
    });
    assert!(opens + 2 * delegated <= 60, "{opens} opens, {delegated} delegations");
    let asked = engine.take_effects(NOW).recall_any;
    assert_eq!(asked.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [greedy]);
    // Another client opens, locks and has delegations.
    for file in 1000..1005 {
        let id = engine.open(NOW, &open(modest, "o", &file, 3, 0)).unwrap();
        lock_for(&mut engine, modest, id, &file, 1).unwrap();
    }
    // When less than a quarter is free, no client gets a delegation.
    let (third, _) = client_at(&mut engine, NOW, host(3), "third");
    until_refused(|file| engine.open(NOW, &open(third, "o", &(2000 + file), 1, 0)).map(drop));
    let _ = engine.take_effects(NOW);
    engine.open(NOW, &open(modest, "o", &5000, 1, 0)).unwrap();
    let refused = engine.delegate_begin(NOW, &wants(&root(modest), &5000, false)).map(drop);
    assert_eq!(refused, Err(NoDelegation::Resource));
    assert!(engine.take_effects(NOW).recall_any.is_empty(), "the only holder was asked just now");
    // The greedy client falls silent. It keeps its state beyond its lease only as long as no other needs the
    // resources.
    begin(&mut engine, NOW.plus(LEASE), session, 0, 1);
    let (_, _, before) = engine.counts();
    engine.tick(NOW.plus(LEASE + 1));
    assert!(engine.counts().2 <= before - opens as usize);
    assert_eq!(engine.sequence(NOW.plus(LEASE + 1), &request(session, 1, 1)).map(drop), Ok(()));
}

/// A client keeps delegations of files that it has closed. They must not use up the resources for its next
/// opens.
#[test]
fn delegations_leave_room_for_opens() {
    let limits = EngineLimits {
        states: 1000,
        descriptors: 120,
        delegations: 1000,
        client_delegations: 1000,
        ..LIMITS
    };
    let mut engine = bounded(limits);
    let (only, _) = client_at(&mut engine, NOW, MODEST, "only");
    let mut delegated = 0;
    for file in 0..500 {
        let id = engine.open(NOW, &open(only, "o", &file, 3, 0)).unwrap();
        if let Ok(begun) = engine.delegate_begin(NOW, &wants(&root(only), &file, true)) {
            engine.delegate_done(&begun).unwrap();
            delegated += 1;
        }
        engine.close(&root(only), &id, &file).unwrap();
    }
    assert!(delegated >= 10, "{delegated} delegations");
    assert_eq!(engine.take_effects(NOW).recall_any.len(), 1, "some are recalled");
    // It can open as many other files as it has delegations.
    for file in 1000..1000 + delegated {
        engine.open(NOW, &open(only, "o", &file, 3, 0)).unwrap();
    }
}

/// Without a limit 13,200 lock owners on one file used as many descriptors.
#[test]
fn lock_owners_on_one_file() {
    let mut engine = bounded(EngineLimits { states: 10_000, descriptors: 200, ..LIMITS });
    let [(greedy, _), (modest, _)] =
        [GREEDY, MODEST].map(|peer| client_at(&mut engine, NOW, peer, &peer.to_string()));
    let mine = engine.open(NOW, &open(greedy, "o", &1, 3, 0)).unwrap();
    let owners = until_refused(|owner| lock_for(&mut engine, greedy, mine, &1, owner).map(drop));
    assert!((90..=100).contains(&owners), "{owners} of 200");
    let others = engine.open(NOW, &open(modest, "o", &1, 3, 0)).unwrap();
    for owner in 5000..5020 {
        lock_for(&mut engine, modest, others, &1, owner).unwrap();
    }
}

/// An open file is charged to one of the clients that have it open; when that one closes it, to another.
#[test]
fn an_open_file_is_charged_once() {
    let mut engine = bounded(EngineLimits { descriptors: 8, ..LIMITS });
    let clients: Vec<_> =
        (0..4).map(|number| client_at(&mut engine, NOW, host(number), &number.to_string()).0).collect();
    let opened: Vec<_> =
        clients.iter().map(|client| engine.open(NOW, &open(*client, "o", &1, 1, 0)).unwrap()).collect();
    // The others still have their whole share.
    let share = |engine: &mut Machine, client, from| {
        until_refused(|file| engine.open(NOW, &open(client, "o", &(from + file), 1, 0)).map(drop))
    };
    assert_eq!(share(&mut engine, clients[1], 100), 3);
    for file in 100..103 {
        let id = engine.open(NOW, &open(clients[1], "o", &file, 1, 0)).unwrap();
        engine.close(&root(clients[1]), &id, &file).unwrap();
    }
    for (client, id) in clients.iter().zip(&opened).take(3) {
        engine.close(&root(*client), id, &1).unwrap();
    }
    assert_eq!(share(&mut engine, clients[3], 200), 3, "it has the fourth");
    engine.close(&root(clients[3]), &opened[3], &1).unwrap();
    assert_eq!(share(&mut engine, clients[3], 300), 1);
    // A file that a grant keeps open stays charged until the grant ends.
    engine.grant(NOW, &200, 1).unwrap();
    let id = engine.open(NOW, &open(clients[3], "o", &200, 1, 0)).unwrap();
    engine.close(&root(clients[3]), &id, &200).unwrap();
    assert_eq!(share(&mut engine, clients[3], 400), 0);
    engine.release_grant(&200, 1);
    assert_eq!(share(&mut engine, clients[3], 500), 1);
}

#[test]
fn under_pressure_courtesy_ends_for_the_largest_client_that_expired_first() {
    let mut engine = bounded(EngineLimits { states: 1000, all: 100, ..LIMITS });
    let has = |engine: &mut Machine, now, number, opens: u32| {
        let (client, session) = client_at(engine, now, host(number), &number.to_string());
        for file in 0..opens {
            engine.open(now, &open(client, "o", &file, 1, 0)).unwrap();
        }
        session
    };
    let silent = [(1, 10), (2, 30), (3, 12)];
    let silent = silent.map(|(number, opens)| has(&mut engine, NOW.plus(number.into()), number, opens));
    let later = NOW.plus(LEASE + 10);
    engine.tick(later);
    assert_eq!(engine.counts().2, 52, "there is enough for all");
    let _busy = has(&mut engine, later, 4, 20);
    engine.tick(later);
    assert_eq!(engine.counts().2, 72);
    has(&mut engine, later, 5, 1);
    engine.tick(later);
    assert_eq!(engine.counts().2, 43, "the greediest had 30");
    let back = silent.map(|session| engine.sequence(later, &request(session, 0, 1)).is_ok());
    assert_eq!(back, [true, false, true]);
    engine.tick(later.plus(LEASE + COURTESY + 1));
    assert_eq!(engine.counts(), (0, 0, 0));
}

#[test]
fn places_in_the_queue_for_locks() {
    let mut engine = bounded(EngineLimits { waiting: 10, states: 1000, ..LIMITS });
    let clients = [GREEDY, MODEST].map(|peer| client_at(&mut engine, NOW, peer, &peer.to_string()).0);
    let all = ByteRange::of(0, u64::MAX).unwrap();
    let mut waits = |client, file: u32, owner: &'static [u8]| {
        let opened = engine.open(NOW, &open(client, "o", &file, 3, 0)).unwrap();
        let locker = Locker::New { open: opened, owner };
        let by = leaked(client);
        let asked = LockRequest {
            by,
            key: &file,
            locker,
            range: all,
            kind: LockKind::Write,
            reclaim: false,
            waits: true,
        };
        let begun = engine.lock_begin(NOW, &asked).unwrap().expect("no client holds it");
        // A local process holds the lock.
        engine.lock_blocked_locally(NOW, &begun, &asked);
        engine.blocked_waiters(100).len()
    };
    let greedy = (0..20).map(|file| waits(clients[0], file, b"l")).max();
    assert_eq!(greedy, Some(5));
    assert_eq!(waits(clients[1], 100, b"l"), 6);
}
