//! What an open, the locks of an owner and a delegation have in common: each is a state with a state id.

use fairness::Peer;

use crate::ids::{ClientId, StateId};
use crate::principal::{Principal, Principals};

/// The common part of a state. The client and the file never change: the tables index states by them.
#[derive(Debug)]
pub(crate) struct StateHeader<K> {
    client: ClientId,
    peer: Peer,
    key: K,
    principals: Principals,
    seqid: u32,
}

impl<K> StateHeader<K> {
    /// A state with a `seqid` of 0, which the client doesn't know yet. `peer` is charged for it.
    pub const fn new(client: ClientId, peer: Peer, key: K, principal: Principal) -> Self {
        Self { client, peer, key, principals: Principals::new(principal), seqid: 0 }
    }

    /// The client that holds the state.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The peer that is charged for the state.
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// The file.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// The principals of the client that may change the state. For locks those of their open count.
    pub const fn principals(&self) -> &Principals {
        &self.principals
    }

    /// Another principal has opened the file for the same owner.
    pub fn add_principal(&mut self, principal: &Principal) {
        self.principals.add(principal);
    }

    /// The `seqid` of the state id that the client was last given; 0 if it wasn't given any.
    pub const fn seqid(&self) -> u32 {
        self.seqid
    }

    /// The current state id. `boot` is the server's run, `number` the state's.
    pub fn id(&self, boot: u32, number: u64) -> StateId {
        StateId::new(boot, number, self.seqid)
    }

    /// The next state id, after a change of the state.
    pub fn bump(&mut self, boot: u32, number: u64) -> StateId {
        // A client's `seqid` of 0 stands for the current one.
        self.seqid = self.seqid.checked_add(1).unwrap_or(1);
        self.id(boot, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seqid_wraps_to_one() {
        let mut header = StateHeader::new(ClientId(1), Peer::Local(0), (), Principal::Sys(0));
        header.seqid = u32::MAX;
        assert_eq!(header.bump(7, 9), StateId::new(7, 9, 1));
        assert_eq!(header.bump(7, 9).seqid, 2);
    }
}
