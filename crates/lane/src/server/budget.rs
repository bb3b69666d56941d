//! What all lanes together may make the server hold, divided among the users of this host.
//!
//! The server keeps no descriptor of a file that it has granted, but it does keep a record of the grant, and
//! until the client has received the descriptor, the kernel counts it among those that the server's user has
//! under way (`RLIMIT_NOFILE`; beyond it sendmsg(2) says `ETOOMANYREFS`). Both are bounded, and shared by
//! user.

use crate::peer::PeerCredentials;
use fairness::{Peer, Shares, Standing};
use parking_lot::Mutex;

/// Whom to charge for what this process makes the server hold.
pub(super) fn share_of(process: &PeerCredentials) -> Peer {
    process.uid.map_or(Peer::LocalUnknown, Peer::Local)
}

/// See the module.
pub(super) struct Budget(Mutex<Files>);

struct Files {
    /// Grants, from before the file is opened until the client releases it.
    granted: Shares,
    /// Those among them that the client hasn't acknowledged.
    under_way: Shares,
}

impl Budget {
    /// At most `granted` files, of which the clients have not acknowledged more than `under_way`. A quarter
    /// of both is kept for root of this host.
    pub(super) fn new(granted: usize, under_way: usize) -> Self {
        let shares = |limit: usize| Shares::new(limit).with_reserves(0, limit / 4);
        Self(Mutex::new(Files { granted: shares(granted), under_way: shares(under_way) }))
    }

    /// One more file is about to be opened for this user. `None`: there's no room in its share.
    pub(super) fn place(&self, peer: Peer) -> Option<Place<'_>> {
        let mut files = self.0.lock();
        let room = files.granted.may_take(&peer, Standing::of_admitted(&peer), 1)
            && files.under_way.may_take(&peer, Standing::of_admitted(&peer), 1);
        if !room {
            return None;
        }
        files.granted.charge(&peer, 1);
        files.under_way.charge(&peer, 1);
        drop(files);
        Some(Place { budget: self, peer })
    }

    /// The client has acknowledged so many.
    pub(super) fn delivered(&self, peer: Peer, many: usize) {
        if many > 0 {
            self.0.lock().under_way.give_back(&peer, many);
        }
    }

    /// The client, or the end of its lane, has released so many.
    pub(super) fn released(&self, peer: Peer, many: usize) {
        if many > 0 {
            self.0.lock().granted.give_back(&peer, many);
        }
    }
}

/// Room for one file. Dropping it gives the room back, unless the file was granted.
pub(super) struct Place<'a> {
    budget: &'a Budget,
    peer: Peer,
}

impl Place<'_> {
    /// The file is a grant now: [`Budget::delivered`] and [`Budget::released`] give the room back.
    pub(super) fn fill(self) {
        std::mem::forget(self);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.budget.delivered(self.peer, 1);
        self.budget.released(self.peer, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back_however_it_ends() {
        let (budget, peer) = (Budget::new(100, 40), Peer::Local(1000));
        let held = |budget: &Budget| {
            let files = budget.0.lock();
            (files.granted.held_by(&peer), files.under_way.held_by(&peer))
        };
        drop(budget.place(peer));
        assert_eq!(held(&budget), (0, 0));
        let mut filled = 0;
        while let Some(place) = budget.place(peer) {
            place.fill();
            filled += 1;
        }
        assert_eq!((filled, held(&budget)), (15, (15, 15)), "half of what isn't kept for root");
        assert!(budget.place(Peer::Local(1001)).is_some(), "the others' part");
        budget.delivered(peer, 15);
        assert!(budget.place(peer).is_some());
        budget.released(peer, 15);
        assert_eq!(held(&budget), (0, 0));
    }
}
