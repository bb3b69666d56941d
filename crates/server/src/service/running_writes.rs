//! The WRITEs that are running. A retransmission must not run concurrently with the original.
//!
//! A WRITE may be repeated, but not while it is still running: the client would take the retransmission's
//! reply, write newer data to the same range, and the first run would overwrite that. There are never more
//! running WRITEs than workers, so a linear search of a short list is cheaper than hashing each call.

use std::net::IpAddr;

use parking_lot::Mutex;
use rpc::message::Credential;
use rpc::server::CallContext;

/// The bytes of a WRITE's arguments that distinguish it from another with the same xid: all but the data, and
/// some of the data.
const FRONT: usize = 192;

/// The list of running WRITEs.
#[derive(Debug, Default)]
pub(crate) struct RunningWrites(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    running: Vec<(u64, WriteCall)>,
    tickets: u64,
}

/// One WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriteCall {
    // The most distinctive field first.
    xid: u32,
    peer: IpAddr,
    /// The caller's stamp, uid and gid.
    caller: Option<(u32, u32, u32)>,
    length: usize,
    front: [u8; FRONT],
}

impl WriteCall {
    fn new(cx: &CallContext<'_>, args: &[u8]) -> Self {
        let caller = match cx.credential {
            Credential::None => None,
            Credential::Sys(sys) => Some((sys.stamp, sys.uid, sys.gid)),
        };
        let mut front = [0; FRONT];
        let length = args.len().min(FRONT);
        front[..length].copy_from_slice(&args[..length]);
        Self { xid: cx.xid, peer: cx.peer.address.ip(), caller, length: args.len(), front }
    }
}

/// A running WRITE; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct WriteGuard<'w> {
    writes: &'w RunningWrites,
    ticket: u64,
}

impl RunningWrites {
    /// Registers a WRITE with these undecoded arguments; `None` if it is already running.
    pub(crate) fn begin(&self, cx: &CallContext<'_>, args: &[u8]) -> Option<WriteGuard<'_>> {
        let write = WriteCall::new(cx, args);
        let mut list = self.0.lock();
        if list.running.iter().any(|(_, other)| *other == write) {
            return None;
        }
        list.tickets += 1;
        let ticket = list.tickets;
        list.running.push((ticket, write));
        Some(WriteGuard { writes: self, ticket })
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let mut list = self.writes.0.lock();
        if let Some(index) = list.running.iter().position(|(ticket, _)| *ticket == self.ticket) {
            list.running.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::message::AuthSys;
    use rpc::server::Peer;

    #[test]
    fn every_part_of_a_write_is_compared() {
        let peer = |host| Peer {
            connection: 1,
            address: ([192, 0, 2, host], 700).into(),
            local: ([192, 0, 2, 9], 2049).into(),
            owner: rpc::server::TcpOwner::Remote,
        };
        let user = |uid| {
            Credential::Sys(AuthSys { stamp: 1, machine_name: b"test".to_vec(), uid, gid: 1, gids: vec![] })
        };
        let (here, there, one, two) = (peer(1), peer(2), user(1), user(2));
        let other_port = Peer { connection: 2, address: ([192, 0, 2, 1], 701).into(), ..here };
        let cx = |xid, peer, user| CallContext::new(xid, 3, peer, user);
        let writes = RunningWrites::default();
        let long = [7; FRONT + 10];
        let first = writes.begin(&cx(1, &here, &one), &long).expect("new");
        assert!(writes.begin(&cx(1, &here, &one), &long).is_none());
        assert!(
            writes.begin(&cx(1, &other_port, &one), &long).is_none(),
            "the next connection of the same client"
        );
        let others = [
            writes.begin(&cx(2, &here, &one), &long),
            writes.begin(&cx(1, &there, &one), &long),
            writes.begin(&cx(1, &here, &two), &long),
            writes.begin(&cx(1, &here, &Credential::None), &long),
            writes.begin(&cx(1, &here, &one), &long[1..]),
            writes.begin(&cx(1, &here, &one), &[8; FRONT + 10]),
            writes.begin(&cx(1, &here, &one), b"short"),
        ];
        assert!(others.iter().all(Option::is_some));
        drop(first);
        drop(writes.begin(&cx(1, &here, &one), &long).expect("again"));
        drop(others);
        assert!(writes.0.lock().running.is_empty());
    }
}
