//! OPEN, OPEN_DOWNGRADE and CLOSE, as far as they concern state (RFC 8881 sections 9.7 to 9.11, 18.2, 18.16
//! and 18.18).

use std::hash::Hash;

use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::owner_index::OwnerKey;
use crate::principal::Requester;
use crate::share::Share;

/// The arguments of OPEN, once the file is known.
#[derive(Debug, Clone, Copy)]
pub struct OpenRequest<'a, K> {
    /// The requester.
    pub by: &'a Requester,
    /// The open owner.
    pub owner: &'a [u8],
    /// The file.
    pub key: &'a K,
    /// The access, and the access that is denied to others.
    pub share: Share,
    /// The client had the file open before the server restarted.
    pub reclaim: bool,
    /// A client of 4.1 or later had opened the file by itself under a delegation (CLAIM_DELEGATE_CUR). Linux
    /// listens for CB_NOTIFY_LOCK only after an OPEN of another kind; after this one it asks for a blocking
    /// lock again after one second, then two, and so on up to 30 (fs/nfs/nfs4proc.c,
    /// `NFS_STATE_MAY_NOTIFY_LOCK`). A lock that was kept for it until then would be free, and refused to all
    /// others, for a second at each change of hands. So it has no place in the queue until its owner has
    /// opened the file in another way, and gets the lock when it asks and the lock is free.
    pub under_delegation: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Checks that [`Engine::open`] would succeed, before the caller creates or truncates the file. Ends
    /// courtesy clients that are in the way.
    ///
    /// # Errors
    /// Those of [`Engine::open`].
    pub fn check_open(&mut self, now: Time, args: &OpenRequest<'_, K>) -> Result<(), Error> {
        self.find_open(now, args).map(drop)
    }

    /// Checks that the client has room for an open of a file that the caller is about to create.
    ///
    /// # Errors
    /// `Delay` when the client has too much state, `StaleClientid`.
    pub fn check_room_for_new(&mut self, now: Time, client: ClientId) -> Result<(), Error> {
        self.check_room_for_open(now, client, true)
    }

    fn check_room_for_open(&mut self, now: Time, client: ClientId, opens_file: bool) -> Result<(), Error> {
        let max = self.config.limits.states;
        self.clients.confirmed_mut(client)?.check_room(max)?;
        self.check_room(now, client, usize::from(opens_file))
    }

    /// The open that the owner already has; otherwise there is room for one. Makes all checks of an open.
    fn find_open(&mut self, now: Time, args: &OpenRequest<'_, K>) -> Result<Option<u64>, Error> {
        let OpenRequest { by, key, owner, .. } = *args;
        self.check_grace(now, by.client, args.reclaim)?;
        // An owner's denials apply to itself, too (RFC 8881 section 9.7).
        match self.check_conflicts(now, Some(by.client), key, AccessKind::Open(args.share)) {
            Err(Error::ShareDenied) if args.reclaim => return Err(Error::ReclaimConflict),
            other => other?,
        }
        let found = self.opens.find(&OwnerKey { client: by.client, key, owner });
        if found.is_none() {
            self.check_room_for_open(now, by.client, self.files.charged(key).is_none())?;
        }
        Ok(found)
    }

    /// OPEN: opens the file for the owner, or adds to the access that the owner has.
    ///
    /// # Errors
    /// `ShareDenied`, `Grace`, `NoGrace`, `ReclaimConflict`, `StaleClientid`; `Delay` when the client has too
    /// much state, and while another client's delegation is being recalled.
    pub fn open(&mut self, now: Time, args: &OpenRequest<'_, K>) -> Result<StateId, Error> {
        let OpenRequest { by, key, owner, .. } = *args;
        let number = match self.find_open(now, args)? {
            Some(number) => number,
            None => self.add_open(by, key, owner)?,
        };
        self.opens.add_share(number, &by.principal, args.share);
        if !args.under_delegation {
            self.opens.set_may_queue(number);
        }
        let header = self.opens.header_mut(number).ok_or(Error::BadStateid)?;
        Ok(header.bump(self.config.boot, number))
    }

    /// An OPEN was refused with `ShareDenied`. Returns whether to delay it instead: only other clients' opens
    /// are in the way of what it denies, and their CLOSEs may be on their way.
    pub fn may_be_closed_soon(&mut self, now: Time, args: &OpenRequest<'_, K>) -> bool {
        let OpenRequest { by, key, share, reclaim, .. } = *args;
        let (mine, theirs) = (Share { access: 0, ..share }, Share { deny: 0, ..share });
        let in_the_way = self.opens.conflicting_clients(key, mine);
        let may_be = !in_the_way.is_empty()
            && !in_the_way.contains(&by.client)
            && self.opens.conflicting_clients(key, theirs).is_empty();
        may_be && !reclaim && self.denied_opens.refused(now, by.client, key)
    }

    /// OPEN_DOWNGRADE.
    ///
    /// # Errors
    /// `Inval` if `to` isn't the union of some of the OPENs, and what is wrong with the state id.
    pub fn downgrade(&mut self, by: &Requester, id: &StateId, key: &K, to: Share) -> Result<StateId, Error> {
        let number = self.resolve_for(by, id, key)?;
        if self.opens.get(number).is_none() {
            return Err(Error::BadStateid);
        }
        if !self.opens.downgrade(number, to) {
            return Err(Error::Inval);
        }
        let header = self.opens.header_mut(number).ok_or(Error::BadStateid)?;
        Ok(header.bump(self.config.boot, number))
    }

    /// CLOSE. Ends the locks that were made through the open, as close(2) does and RFC 8881 section 9.8
    /// allows.
    ///
    /// # Errors
    /// What is wrong with the state id.
    pub fn close(&mut self, by: &Requester, id: &StateId, key: &K) -> Result<(), Error> {
        let number = self.resolve_for(by, id, key)?;
        if self.opens.get(number).is_none() {
            return Err(Error::BadStateid);
        }
        self.remove_state(number);
        Ok(())
    }
}
