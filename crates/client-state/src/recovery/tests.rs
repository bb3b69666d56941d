//! Tests of the state manager's steps.

use super::*;

const LEASE: Duration = Duration::from_secs(90);
const CREATE: Step = Step::CreateSession { client: 7, sequence: 3 };

/// A state manager with a session, which has reclaimed everything, and the time of its last SEQUENCE.
fn running() -> (StateManager, Instant) {
    let (mut manager, now) = (StateManager::new(LEASE), Instant::now());
    assert_eq!(manager.step(now), Step::ExchangeId);
    manager.exchanged(7, 3, false);
    assert_eq!(manager.step(now), CREATE);
    manager.session_created();
    assert!(!manager.is_ready());
    reclaim(&mut manager, now, 1);
    (manager, now)
}

/// Takes the steps from Reclaim on.
fn reclaim(manager: &mut StateManager, now: Instant, loss: u64) {
    assert_eq!(manager.step(now), Step::Reclaim { loss });
    manager.reclaimed(loss);
    assert_eq!((manager.step(now), manager.is_ready()), (Step::ReclaimComplete, false));
    manager.sequenced(manager.session(), now, RECLAIM_NEEDED);
    manager.reclaim_completed(now);
    assert!(manager.is_ready() && manager.is_lease_valid(now));
    assert_eq!(manager.step(now), Step::Wait(now + LEASE * 2 / 3));
}

#[test]
fn an_idle_client_renews_its_lease() {
    let (mut manager, start) = running();
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(manager.step(at(59)), Step::Wait(at(60)));
    assert_eq!(manager.step(at(60)), Step::Renew);
    assert!(manager.is_lease_valid(at(89)) && !manager.is_lease_valid(at(90)));
    // Replies in another order: the lease is that of the last request.
    manager.sequenced(1, at(61), 0);
    manager.sequenced(1, at(50), 0);
    assert_eq!(manager.step(at(61)), Step::Wait(at(121)));
    manager.set_lease(Duration::from_secs(30));
    assert_eq!(manager.step(at(61)), Step::Wait(at(81)));
    manager.sequenced(0, at(200), 0);
    assert_eq!(manager.step(at(100)), Step::Renew, "another session's");
}

#[test]
fn a_client_renews_its_lease_when_a_connection_was_lost() {
    let (mut manager, start) = running();
    let at = |seconds| start + Duration::from_secs(seconds);
    manager.disconnected(at(10));
    assert_eq!(manager.step(at(10)), Step::Renew);
    // The reply to a request that was sent before says nothing of the server's instance now.
    manager.sequenced(1, at(9), 0);
    assert_eq!(manager.step(at(10)), Step::Renew);
    manager.sequenced(1, at(11), 0);
    assert_eq!(manager.step(at(11)), Step::Wait(at(71)));
    // A server that ends each connection after a reply is asked once a second.
    manager.disconnected(at(11));
    assert_eq!(manager.step(at(11)), Step::Wait(at(12)));
    assert_eq!(manager.step(at(12)), Step::Renew);
    // No renewal is later than without a loss.
    manager.set_lease(Duration::from_millis(300));
    assert_eq!(manager.step(at(11)), Step::Wait(at(11) + Duration::from_millis(200)));
}

/// The server may lose the back channel with each connection. No SEQUENCE between two losses says that the
/// first one was repaired.
#[test]
fn each_lost_connection_is_bound_once_again() {
    let (mut manager, now) = running();
    manager.sequenced(1, now, 0);
    for flag in [0x1, 0x200] {
        for _ in 0..2 {
            manager.disconnected(now);
            manager.sequenced(1, now, flag);
            assert_eq!(manager.step(now), Step::BindConnections);
            manager.bound();
            assert_ne!(manager.step(now), Step::BindConnections);
        }
        // A server that goes on saying so isn't asked again before the next loss.
        manager.sequenced(1, now, flag);
        assert_ne!(manager.step(now), Step::BindConnections);
    }
}

#[test]
fn a_lost_session_is_replaced() {
    let (mut manager, now) = running();
    manager.failed(1, SessionError::Unknown);
    assert!(!manager.is_ready());
    assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 4 });
    // The other requests of the session fail, too.
    manager.failed(1, SessionError::Unknown);
    manager.session_created();
    assert_eq!((manager.session(), manager.is_ready()), (2, true), "nothing is reclaimed");
    manager.failed(1, SessionError::StaleClientId);
    manager.sequenced(1, now, REVOKED | BACKCHANNEL_FAULT);
    assert_eq!(manager.step(now), Step::Wait(now + LEASE * 2 / 3), "reports about the first session");
}

#[test]
fn revoked_state_is_known_until_the_server_says_that_it_is_freed() {
    let (mut manager, now) = running();
    assert!(!manager.has_revoked_state());
    for flags in [REVOKED & REVOKED.wrapping_neg(), REVOKED] {
        manager.sequenced(1, now, flags);
        assert!(manager.has_revoked_state());
        manager.tested(now, true);
        assert!(manager.has_revoked_state());
    }
    manager.sequenced(1, now, 0);
    assert!(!manager.has_revoked_state());
}

/// The flag is of all revoked state. It may be about other state than that which was found.
#[test]
fn state_that_is_revoked_while_others_are_freed_is_tested_for() {
    let (mut manager, start) = running();
    let at = |seconds| start + Duration::from_secs(seconds);
    let is_testing = |manager: &StateManager, now| manager.step(now) == Step::TestStates;
    manager.sequenced(1, at(1), 0x40);
    assert!(is_testing(&manager, at(1)) && !manager.is_lease_valid(at(1)));
    manager.tested(at(3), true);
    manager.sequenced(1, at(2), 0x40);
    assert!(!is_testing(&manager, at(3)), "sent before the state was freed");
    manager.sequenced(1, at(3), 0x40);
    assert!(is_testing(&manager, at(3)), "other state");
    // Another request has found that before. The second time the client doesn't know the state.
    manager.tested(at(3), false);
    manager.sequenced(1, at(4), 0x40);
    assert!(is_testing(&manager, at(4)));
    manager.tested(at(4), false);
    for seconds in 5..94 {
        manager.sequenced(1, at(seconds), 0x40);
        assert!(!is_testing(&manager, at(seconds)), "{seconds}");
    }
    manager.sequenced(1, at(94), 0x40);
    assert!(is_testing(&manager, at(94)));
    manager.tested(at(94), false);
    manager.sequenced(1, at(95), 0);
    manager.sequenced(1, at(96), 0x40);
    assert!(is_testing(&manager, at(96)), "the flag is new");
}

#[test]
fn a_session_that_is_of_no_use_is_destroyed() {
    for by_flag in [false, true] {
        let (mut manager, now) = running();
        if by_flag {
            manager.sequenced(1, now, BACKCHANNEL_FAULT);
        } else {
            manager.failed(1, SessionError::Disordered);
        }
        assert_eq!((manager.step(now), manager.is_ready()), (Step::DestroySession, false));
        manager.failed(1, SessionError::Unknown);
        assert_eq!(manager.step(now), Step::DestroySession);
        manager.session_destroyed();
        assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 4 });
        manager.session_created();
        manager.session_destroyed();
        assert!(manager.is_ready());
    }
}

#[test]
fn a_new_client_id_reclaims() {
    let (mut manager, now) = running();
    manager.failed(1, SessionError::Unknown);
    manager.session_refused();
    assert_eq!(manager.step(now), Step::ExchangeId);
    manager.exchanged(8, 1, false);
    assert_eq!(manager.step(now), Step::CreateSession { client: 8, sequence: 1 });
    manager.session_created();
    assert_eq!(manager.step(now), Step::Reclaim { loss: 2 });
    // The server restarts again.
    manager.failed(2, SessionError::StaleClientId);
    manager.reclaimed(2);
    manager.exchanged(7, 3, false);
    manager.session_created();
    manager.reclaimed(2);
    assert_eq!(manager.session(), 3);
    reclaim(&mut manager, now, 3);
    manager.reclaimed(3);
    assert_eq!(manager.step(now), Step::Wait(now + LEASE * 2 / 3), "once");
}

/// A server that has lost the client gives its next client another id, and may say that this one is known.
#[test]
fn another_client_id_has_no_state() {
    let (mut manager, now) = running();
    manager.failed(1, SessionError::StaleClientId);
    manager.exchanged(8, 1, true);
    assert_eq!(manager.step(now), Step::CreateSession { client: 8, sequence: 1 });
    manager.session_created();
    assert!(!manager.is_ready());
    reclaim(&mut manager, now, 2);
}

/// The server at the address is another one, which happens to know the same client id.
#[test]
fn another_server_has_no_state() {
    for is_other_scope in [false, true] {
        let (mut manager, now) = running();
        manager.failed(1, SessionError::StaleClientId);
        manager.server_changed(is_other_scope);
        manager.exchanged(7, 99, true);
        assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 99 });
        manager.session_created();
        assert!(!manager.is_ready());
        assert_eq!(manager.can_reclaim(), !is_other_scope);
        reclaim(&mut manager, now, 2);
        assert!(manager.can_reclaim(), "later losses are this server's");
    }
}

#[test]
fn a_client_id_that_the_server_knows_keeps_its_state() {
    let (mut manager, now) = running();
    manager.failed(1, SessionError::StaleClientId);
    manager.exchanged(7, 99, true);
    assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 99 });
    manager.session_refused();
    manager.exchanged(7, 4, true);
    manager.session_created();
    assert!(manager.is_ready());
    // The session is lost while something is being reclaimed, and before the server is told.
    let mut manager = StateManager::new(LEASE);
    manager.exchanged(7, 3, false);
    manager.session_created();
    manager.failed(1, SessionError::Unknown);
    assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 4 });
    manager.exchanged(7, 99, true);
    assert_eq!(manager.step(now), Step::CreateSession { client: 7, sequence: 4 }, "its own");
    manager.session_created();
    assert_eq!(manager.step(now), Step::Reclaim { loss: 1 }, "what was reclaimed stays");
    manager.reclaimed(1);
    manager.failed(2, SessionError::Unknown);
    manager.session_created();
    assert_eq!(manager.step(now), Step::ReclaimComplete);
}

#[test]
fn status_flags_lead_to_steps() {
    let (mut manager, now) = running();
    manager.sequenced(1, now, 0);
    manager.sequenced(1, now, 0x40);
    assert_eq!(manager.step(now), Step::TestStates);
    assert!(manager.is_ready());
    manager.tested(now, false);
    manager.tested(now, false);
    manager.sequenced(1, now, 0x40);
    assert_eq!(manager.step(now), Step::Wait(now + LEASE * 2 / 3), "it was dealt with");
    manager.sequenced(1, now, 0x48);
    assert_eq!(manager.step(now), Step::TestStates, "another flag");
    manager.sequenced(1, now, 0x248);
    assert_eq!(manager.step(now), Step::BindConnections);
    manager.bound();
    assert_eq!(manager.step(now), Step::TestStates);
    manager.tested(now, false);
    manager.failed(1, SessionError::NotBound);
    assert_eq!(manager.step(now), Step::BindConnections);
    manager.bound();
    let later = now + Duration::from_secs(1);
    manager.sequenced(1, later, RECLAIM_NEEDED);
    assert!(!manager.is_ready());
    reclaim(&mut manager, later, 2);
}

#[test]
fn a_late_reply_from_before_reclaim_complete_means_no_loss() {
    let (mut manager, completed) = running();
    let at = |seconds| completed + Duration::from_secs(seconds);
    manager.sequenced(1, at(1), 0);
    manager.sequenced(1, completed, RECLAIM_NEEDED);
    assert!(manager.is_ready(), "the request was sent before");
    manager.sequenced(1, at(2), RECLAIM_NEEDED);
    assert!(!manager.is_ready());
    // What is lost right after that is lost, too.
    reclaim(&mut manager, at(2), 2);
    manager.sequenced(1, at(3), RECLAIM_NEEDED);
    reclaim(&mut manager, at(3), 3);
}
