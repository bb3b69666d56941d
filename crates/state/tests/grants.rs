//! Grants count as opens by local processes.

use crate::common::{LEASE, after, client, engine, open, root};
use state::{Error, Time};

const NOW: Time = Time(5000);
const FILE: u32 = 1;

#[test]
fn grants_and_deny_modes_exclude_each_other() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    assert!(!engine.denies());
    for (deny, access, refused) in
        [(1, 1, true), (1, 2, false), (1, 3, true), (2, 1, false), (2, 2, true), (3, 1, true), (0, 3, false)]
    {
        let id = engine.open(NOW, &open(me, "o", &FILE, 1, deny)).unwrap();
        assert_eq!(engine.denies(), deny != 0);
        assert_eq!(engine.grant(NOW, &FILE, access).is_err(), refused, "opened against {deny}");
        if !refused {
            engine.release_grant(&FILE, access);
        }
        engine.close(&root(me), &id, &FILE).unwrap();
        assert!(!engine.denies());

        engine.grant(NOW, &FILE, access).unwrap();
        let opened = engine.open(NOW, &open(me, "o", &FILE, 1, deny));
        assert_eq!(opened.is_err(), refused, "granted for {access}");
        if let Ok(id) = opened {
            engine.close(&root(me), &id, &FILE).unwrap();
        }
        engine.release_grant(&FILE, access);
        assert!(!engine.is_open(&FILE), "nothing is left");
    }
}

#[test]
fn two_grants_are_two_opens() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    engine.grant(NOW, &FILE, 1).unwrap();
    engine.grant(NOW, &FILE, 3).unwrap();
    engine.release_grant(&FILE, 3);
    assert_eq!(engine.open(NOW, &open(me, "o", &FILE, 1, 1)), Err(Error::ShareDenied));
    let id = engine.open(NOW, &open(me, "o", &FILE, 1, 2)).unwrap();
    engine.close(&root(me), &id, &FILE).unwrap();
    engine.release_grant(&FILE, 1);
    engine.open(NOW, &open(me, "o", &FILE, 1, 1)).unwrap();
}

#[test]
fn a_grant_ends_expired_clients_and_is_refused_during_the_grace_period() {
    let mut engine = after(&["old"]);
    assert_eq!(engine.grant(Time(0), &FILE, 1), Err(Error::Grace));
    let (me, _) = client(&mut engine, Time(LEASE), "me");
    engine.open(Time(LEASE), &open(me, "o", &FILE, 1, 3)).unwrap();
    assert_eq!(engine.grant(Time(LEASE), &FILE, 1), Err(Error::ShareDenied));
    engine.grant(Time(2 * LEASE + 1), &FILE, 1).unwrap();
    assert_eq!(engine.counts(), (0, 0, 0));
}

#[test]
fn opens_may_remain_uncounted_while_none_denies_access_or_may_be_reclaimed() {
    let mut engine = after(&["old"]);
    assert!(!engine.permits_uncounted_opens(Time(0)), "the old client may reclaim");
    assert!(engine.permits_uncounted_opens(Time(LEASE)));
    let (me, _) = client(&mut engine, Time(LEASE), "me");
    for (deny, permitted) in [(0, true), (1, false), (2, false)] {
        let id = engine.open(Time(LEASE), &open(me, "o", &FILE, 1, deny)).unwrap();
        assert_eq!(engine.permits_uncounted_opens(Time(LEASE)), permitted, "opened against {deny}");
        engine.close(&root(me), &id, &FILE).unwrap();
        assert!(engine.permits_uncounted_opens(Time(LEASE)));
    }
}
