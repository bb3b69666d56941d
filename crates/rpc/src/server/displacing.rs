//! Which connection makes way when connections or descriptors have run short. Pure.
//!
//! 1. A stranger: of the peer that has the most of them, the one that has been idle for longest.
//! 2. Else a connection of the peer that has the most connections, if that is more than the newcomer's peer
//!    then has; again the one that has been idle for longest.
//!
//! A stranger makes only strangers give way. A connection in use (a call of it is running, or it has replies
//! to read) is never closed for this.

use std::collections::HashMap;

use fairness::{Peer, Shares, Standing};

/// A connection that could make way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub number: u64,
    /// Whom it is charged to.
    pub peer: Peer,
    /// Whether no rule names its peer.
    pub stranger: bool,
    /// When it was last worked for: a count that grows.
    pub last_used: u64,
}

/// Who is to be let in.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    /// Whom it will be charged to.
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
        // Between strangers, too, only who has more makes way.
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

    /// Connections of (peer, stranger, when last used), numbered from 1.
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
    fn strangers_go_first_those_of_the_peer_with_the_most_and_the_longest_idle() {
        let connections =
            [(A, false, 1), (A, false, 2), (A, false, 3), (B, true, 9), (C, true, 5), (B, true, 7)];
        assert_eq!(displaced(C, Standing::Admitted, &connections), [6, 4, 5, 1, 2, 3]);
        // Also those of the newcomer's own peer: another user of the host that root mounts on.
        assert_eq!(displaced(B, Standing::Admitted, &connections[3..]), [3, 1, 2]);
    }

    #[test]
    fn a_stranger_displaces_no_client_and_no_stranger_that_has_no_more_than_it() {
        let clients = [(A, false, 1), (A, false, 2), (A, false, 3)];
        assert_eq!(displaced(B, Standing::Stranger, &clients), [0; 0]);
        assert_eq!(displaced(B, Standing::Stranger, &[(A, true, 1)]), [0; 0]);
        assert_eq!(displaced(B, Standing::Stranger, &[(A, true, 2), (A, true, 1)]), [2, 1]);
        assert_eq!(displaced(A, Standing::Stranger, &[(A, true, 2), (A, true, 1)]), [0; 0]);
    }

    #[test]
    fn clients_make_way_for_those_who_have_less() {
        let connections = [(A, false, 4), (A, false, 3), (A, false, 6), (B, false, 1), (B, false, 2)];
        assert_eq!(displaced(C, Standing::Admitted, &connections), [2, 1, 3]);
        assert_eq!(displaced(B, Standing::LocalRoot, &connections), [0; 0], "it would have as many then");
        assert_eq!(displaced(A, Standing::Admitted, &connections), [0; 0]);
    }
}
