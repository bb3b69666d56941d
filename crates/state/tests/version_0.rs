//! NFSv4.0: SETCLIENTID's cases, and the sequence numbers of owners.

use crate::common::{HERE, LEASE, Machine, OTHER, ROOT, engine, open, root};
use state::{
    ByteRange, ClientId, Error, LockKind, LockRequest, Locker, OwnerRequest, SetClientId, StateOwner, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;

const fn named(owner: &str, verifier: u8) -> SetClientId<'_> {
    SetClientId { owner: owner.as_bytes(), peer: HERE, verifier: [verifier; 8], principal: &ROOT }
}

fn client(engine: &mut Machine, owner: &str) -> ClientId {
    let (client, confirm) = engine.setclientid(NOW, &named(owner, 1)).unwrap();
    engine.setclientid_confirm(NOW, client, confirm, &ROOT).unwrap();
    client
}

fn opener() -> StateOwner {
    StateOwner::Open(b"o".to_vec())
}

/// RFC 7530 section 16.33.5.
#[test]
fn setclientid_cases() {
    let mut engine = engine();
    let (first, confirm) = engine.setclientid(NOW, &named("a", 1)).unwrap();
    assert_eq!(engine.renew40(NOW, first), Err(Error::StaleClientid), "unconfirmed");
    // Unconfirmed, it is replaced.
    let (client, again) = engine.setclientid(NOW, &named("a", 1)).unwrap();
    assert_eq!(engine.setclientid_confirm(NOW, first, confirm, &ROOT), Err(Error::StaleClientid));
    assert_eq!(engine.setclientid_confirm(NOW, client, again + 1, &ROOT), Err(Error::StaleClientid));
    assert_eq!(engine.setclientid_confirm(NOW, client, again, &OTHER), Err(Error::ClidInuse));
    for _ in 0..2 {
        engine.setclientid_confirm(NOW, client, again, &ROOT).unwrap();
    }
    // The same instance with another callback keeps its id and its state.
    let id = engine.open(NOW, &open(client, "o", &FILE, 1, 0)).unwrap();
    let (same, update) = engine.setclientid(NOW, &named("a", 1)).unwrap();
    assert!(same == client && update != again);
    engine.setclientid_confirm(NOW, client, update, &ROOT).unwrap();
    assert_eq!(engine.client_of(NOW, &id), Ok(client));
    // Another principal's.
    let other_user = SetClientId { principal: &OTHER, ..named("a", 1) };
    assert_eq!(engine.setclientid(NOW, &other_user), Err(Error::ClidInuse));
    // It has restarted: its state stays until it is confirmed.
    let (new, confirm) = engine.setclientid(NOW, &named("a", 2)).unwrap();
    assert_eq!(engine.client_of(NOW, &id), Ok(client));
    engine.setclientid_confirm(NOW, new, confirm, &ROOT).unwrap();
    assert_eq!(engine.client_of(NOW, &id), Err(Error::Expired));
    assert_eq!(engine.renew40(NOW, client), Err(Error::Expired));
    engine.tick(NOW.plus(LEASE + 1));
    assert_eq!(engine.renew40(NOW.plus(LEASE + 1), new), Err(Error::Expired));
}

#[test]
fn an_owners_requests_run_once_and_in_order() {
    let mut engine = engine();
    let client = client(&mut engine, "a");
    let owner = opener();
    let mut begin = |seqid, opens| engine.owner_begin(NOW, &root(client), &owner, seqid, opens);
    assert_eq!(begin(7, false), Err(Error::BadSeqid), "an unknown owner");
    assert_eq!(begin(7, true), Ok(OwnerRequest::New));
    assert_eq!(begin(7, true), Err(Error::Delay), "it is running");
    let reply: std::sync::Arc<[u8]> = b"opened"[..].into();
    engine.owner_end(&root(client), &owner, 7, Some(reply.clone()));
    let id = engine.open(NOW, &open(client, "o", &FILE, 1, 0)).unwrap();
    let mut begin = |seqid, opens| engine.owner_begin(NOW, &root(client), &owner, seqid, opens);
    assert_eq!(begin(7, true), Ok(OwnerRequest::Replay(reply)));
    assert_eq!(begin(9, false), Err(Error::BadSeqid));
    assert_eq!(begin(8, false), Ok(OwnerRequest::New));
    // A request that doesn't advance the sequence is repeated with the same number.
    engine.owner_end(&root(client), &owner, 8, None);
    assert_eq!(engine.owner_begin(NOW, &root(client), &owner, 8, false), Ok(OwnerRequest::New));
    assert!(engine.needs_confirmation(client, b"o", false));
    let confirmed = engine.open_confirm(&root(client), &id, &FILE).unwrap();
    assert_eq!(confirmed.seqid, id.seqid + 1);
    assert_eq!(engine.open_confirm(&root(client), &confirmed, &FILE), Err(Error::BadStateid), "once");
    engine.owner_end(&root(client), &owner, 8, Some(b"confirmed"[..].into()));
    assert_eq!(
        engine.owner_begin(NOW, &root(client), &owner, 99, true),
        Err(Error::BadSeqid),
        "it is known now"
    );
    // A closed open is remembered for its owner until the next close.
    engine.owner_begin(NOW, &root(client), &owner, 9, false).unwrap();
    engine.close(&root(client), &confirmed, &FILE).unwrap();
    engine.remember_closed_open(client, &confirmed, &owner);
    engine.owner_end(&root(client), &owner, 9, Some(b"closed"[..].into()));
    assert_eq!(engine.owner_of(NOW, &confirmed, &ROOT), Ok((client, owner.clone())));
    assert_eq!(
        engine.owner_begin(NOW, &root(client), &owner, 9, false),
        Ok(OwnerRequest::Replay(b"closed"[..].into()))
    );
}

#[test]
fn an_unconfirmed_owner_starts_a_new_sequence() {
    let mut engine = engine();
    let client = client(&mut engine, "a");
    engine.owner_begin(NOW, &root(client), &opener(), 1, true).unwrap();
    let stray = engine.open(NOW, &open(client, "o", &FILE, 3, 3)).unwrap();
    engine.owner_end(&root(client), &opener(), 1, Some(b"stray"[..].into()));
    assert_eq!(engine.owner_begin(NOW, &root(client), &opener(), 50, true), Ok(OwnerRequest::New));
    assert_eq!(engine.client_of(NOW, &stray), Err(Error::BadStateid));
}

#[test]
fn lock_owners_have_their_own_sequence_and_are_released() {
    let mut engine = engine();
    let client = client(&mut engine, "a");
    let locker = StateOwner::Lock(b"l".to_vec());
    engine.owner_begin(NOW, &root(client), &opener(), 1, true).unwrap();
    let id = engine.open(NOW, &open(client, "o", &FILE, 3, 0)).unwrap();
    engine.owner_end(&root(client), &opener(), 1, Some(b"opened"[..].into()));
    let (range, kind) = (ByteRange::of(0, 10).unwrap(), LockKind::Write);
    let new = Locker::New { open: id, owner: b"l" };
    let asked =
        LockRequest { by: &root(client), key: &FILE, locker: new, range, kind, reclaim: false, waits: false };
    let begun = engine.lock_begin(NOW, &asked).unwrap().unwrap();
    let lock = engine.lock_done(&begun, range, kind).unwrap();
    engine.start_lock_owner(&root(client), &locker, 20);
    assert_eq!(engine.owner_of(NOW, &lock, &ROOT), Ok((client, locker.clone())));
    assert_eq!(engine.owner_begin(NOW, &root(client), &locker, 21, false), Ok(OwnerRequest::New));
    assert_eq!(engine.release_lockowner(NOW, client, b"l"), Err(Error::LocksHeld));
    let begun = engine.unlock_begin(&root(client), &lock, &FILE, range).unwrap();
    engine.unlock_done(&begun, range).unwrap();
    engine.release_lockowner(NOW, client, b"l").unwrap();
    assert_eq!(engine.client_of(NOW, &lock), Err(Error::BadStateid));
    assert_eq!(engine.owner_begin(NOW, &root(client), &locker, 22, false), Err(Error::BadSeqid));
    engine.release_lockowner(NOW, client, b"nobody").unwrap();
}
