//! Which connection is displaced when connections or descriptors have run out. Pure.
//!
//! 1. A stranger's: of the peer that has the most of them, the one that has been idle for longest.
//! 2. Otherwise a connection of the peer that has the most connections, if it has more than the newcomer's
//!    peer would have; again the one that has been idle for longest.
//!
//! A stranger displaces only strangers. A connection in use (with a running call or unread replies) is never
//! displaced.

use std::collections::HashMap;

use fairness::{Peer, Shares, Standing};

/// A connection that might be displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub number: u64,
    /// The peer that it is charged to.
    pub peer: Peer,
    /// Whether no export rule names its peer.
    pub stranger: bool,
    /// When it was last driven, in engine moments.
    pub last_used: u64,
}

/// The connection to be accepted.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    /// The peer that it will be charged to.
    pub peer: Peer,
    /// What it may displace.
    pub standing: Standing,
}

/// The connections that may be closed for `newcomer`, the best choice first. Some of them may be in use.
pub fn order(newcomer: Newcomer, shares: &Shares<Peer>, mut all: Vec<Candidate>) -> Vec<u64> {
    let mut strangers: HashMap<Peer, usize> = HashMap::new();
    for stranger in all.iter().filter(|candidate| candidate.stranger) {
        *strangers.entry(stranger.peer).or_default() += 1;
    }
    let outsider = newcomer.standing == Standing::Stranger;
    let own = strangers.get(&newcomer.peer).copied().unwrap_or(0);
    let displaced = if outsider { None } else { shares.displaced_by(&newcomer.peer, 1) };
    all.retain(|candidate| match strangers.get(&candidate.peer) {
        // Among strangers, only a peer that has more is displaced.
        Some(count) if candidate.stranger => !outsider || *count > own + 1,
        _ => displaced == Some(candidate.peer),
    });
    all.sort_by_key(|candidate| {
        let count = if candidate.stranger { strangers.get(&candidate.peer).copied() } else { None };
        (!candidate.stranger, std::cmp::Reverse(count), candidate.last_used)
    });
    all.into_iter().map(|candidate| candidate.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Peer = Peer::V4([192, 0, 2, 1]);
    const B: Peer = Peer::V4([192, 0, 2, 2]);
    const C: Peer = Peer::V4([192, 0, 2, 3]);

    /// Connections of (peer, stranger, last use), numbered from 1.
    fn table(connections: &[(Peer, bool, u64)]) -> (Shares<Peer>, Vec<Candidate>) {
        let mut shares = Shares::new(100);
        let candidates = (1..).zip(connections).map(|(number, &(peer, stranger, last_used))| {
            shares.charge(&peer, 1);
            Candidate { number, peer, stranger, last_used }
        });
        let candidates = candidates.collect();
        (shares, candidates)
    }

    fn displaced(by: Peer, standing: Standing, connections: &[(Peer, bool, u64)]) -> Vec<u64> {
        let (shares, candidates) = table(connections);
        order(Newcomer { peer: by, standing }, &shares, candidates)
    }

    #[test]
    fn strangers_are_displaced_first_by_count_and_idle_time() {
        let connections =
            [(A, false, 1), (A, false, 2), (A, false, 3), (B, true, 9), (C, true, 5), (B, true, 7)];
        assert_eq!(displaced(C, Standing::Admitted, &connections), [6, 4, 5, 1, 2, 3]);
        // A stranger's connections of the newcomer's own peer count, too: another user of the host that root
        // mounts on.
        assert_eq!(displaced(B, Standing::Admitted, &connections[3..]), [3, 1, 2]);
    }

    #[test]
    fn a_stranger_displaces_only_strangers_with_more_connections() {
        let clients = [(A, false, 1), (A, false, 2), (A, false, 3)];
        assert_eq!(displaced(B, Standing::Stranger, &clients), [0; 0]);
        assert_eq!(displaced(B, Standing::Stranger, &[(A, true, 1)]), [0; 0]);
        assert_eq!(displaced(B, Standing::Stranger, &[(A, true, 2), (A, true, 1)]), [2, 1]);
        assert_eq!(displaced(A, Standing::Stranger, &[(A, true, 2), (A, true, 1)]), [0; 0]);
    }

    #[test]
    fn clients_are_displaced_for_peers_that_have_fewer() {
        let connections = [(A, false, 4), (A, false, 3), (A, false, 6), (B, false, 1), (B, false, 2)];
        assert_eq!(displaced(C, Standing::Admitted, &connections), [2, 1, 3]);
        assert_eq!(displaced(B, Standing::LocalRoot, &connections), [0; 0], "it would have as many then");
        assert_eq!(displaced(A, Standing::Admitted, &connections), [0; 0]);
    }
}
