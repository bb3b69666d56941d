//! The resources that all lanes together may use, shared by the users of this host.
//!
//! The server keeps no descriptor of a granted file, but it keeps a record of the grant, and until the client
//! has received the descriptor, the kernel counts it among those that the server's user has in flight
//! (`RLIMIT_NOFILE`; beyond it sendmsg(2) fails with `ETOOMANYREFS`). Both are bounded, and shared by user.

use crate::peer::PeerCredentials;
use fairness::{Peer, Shares, Standing};
use parking_lot::Mutex;

/// The peer to charge for what this process makes the server hold.
pub(super) fn share_of(process: &PeerCredentials) -> Peer {
    process.uid.map_or(Peer::LocalUnknown, Peer::Local)
}

/// The grants and the files in flight of all lanes.
pub(super) struct GrantBudget(Mutex<GrantedFiles>);

struct GrantedFiles {
    /// Grants, from before the file is opened until the client releases it.
    granted: Shares,
    /// The grants among them that the client hasn't acknowledged.
    under_way: Shares,
}

impl GrantBudget {
    /// At most `granted` files, of which at most `under_way` may be unacknowledged. A quarter of both is
    /// reserved for root of this host.
    pub(super) fn new(granted: usize, under_way: usize) -> Self {
        let shares = |limit: usize| Shares::new(limit).with_reserves(0, limit / 4);
        Self(Mutex::new(GrantedFiles { granted: shares(granted), under_way: shares(under_way) }))
    }

    /// Reserves room for one file that is about to be opened for this user. `None` if its share is used up.
    pub(super) fn reserve(&self, peer: Peer) -> Option<Reservation<'_>> {
        let mut files = self.0.lock();
        let room = files.granted.may_take(&peer, Standing::of_admitted(&peer), 1)
            && files.under_way.may_take(&peer, Standing::of_admitted(&peer), 1);
        if !room {
            return None;
        }
        files.granted.charge(&peer, 1);
        files.under_way.charge(&peer, 1);
        drop(files);
        Some(Reservation { budget: self, peer })
    }

    /// The client has acknowledged this many grants.
    pub(super) fn delivered(&self, peer: Peer, many: usize) {
        if many > 0 {
            self.0.lock().under_way.give_back(&peer, many);
        }
    }

    /// The client, or the end of its lane, has released this many grants.
    pub(super) fn released(&self, peer: Peer, many: usize) {
        if many > 0 {
            self.0.lock().granted.give_back(&peer, many);
        }
    }
}

/// Room for one file, given back when dropped unless the file was granted.
pub(super) struct Reservation<'a> {
    budget: &'a GrantBudget,
    peer: Peer,
}

impl Reservation<'_> {
    /// The file was granted. [`GrantBudget::delivered`] and [`GrantBudget::released`] give the room back.
    pub(super) fn commit(self) {
        std::mem::forget(self);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.delivered(self.peer, 1);
        self.budget.released(self.peer, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_given_back() {
        let (budget, peer) = (GrantBudget::new(100, 40), Peer::Local(1000));
        let held = |budget: &GrantBudget| {
            let files = budget.0.lock();
            (files.granted.held_by(&peer), files.under_way.held_by(&peer))
        };
        drop(budget.reserve(peer));
        assert_eq!(held(&budget), (0, 0));
        let mut filled = 0;
        while let Some(reservation) = budget.reserve(peer) {
            reservation.commit();
            filled += 1;
        }
        assert_eq!((filled, held(&budget)), (15, (15, 15)), "half of what isn't kept for root");
        assert!(budget.reserve(Peer::Local(1001)).is_some(), "the others' part");
        budget.delivered(peer, 15);
        assert!(budget.reserve(peer).is_some());
        budget.released(peer, 15);
        assert_eq!(held(&budget), (0, 0));
    }
}
