//! The table of asynchronous copies (RFC 7862 sections 4, 15.2, 15.8, 15.9, 16.1).
//!
//! 1. A long COPY of a client that can be called back and doesn't insist on a synchronous one gets a thread
//!    and a state id.
//! 2. OFFLOAD_STATUS reports its progress. OFFLOAD_CANCEL stops it, and so does the end of the client; the
//!    bytes that were copied stay.
//! 3. CB_OFFLOAD reports its end. The result can be queried until the client has answered CB_OFFLOAD, or
//!    until another copy needs the entry.
//!
//! This is the table of copies; `programs::nfs4::copy_thread` copies. The numbers of copies of a client and
//! of all clients are bounded. Above the bounds COPY is synchronous.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairness::{Peer, Shares, Standing};
use parking_lot::{Condvar, Mutex};
use proto::nfs4::{Nfsstat4, OffloadStatus4ResOk, Stateid4};
use state::ClientId;
use store::FileHandle;
use xdr::Array;

/// The result of an operation on copies.
type Result<T> = std::result::Result<T, Nfsstat4>;

/// The most copies at a time: each has a thread.
const MAX_COPIES: usize = 16;
/// The most copies of one client at a time.
const MAX_OF_CLIENT: usize = 4;
/// The most copies that have ended and are remembered.
const MAX_ENDED: usize = 256;

/// A copy that runs or has ended.
#[derive(Debug)]
pub(crate) struct Copying {
    pub client: ClientId,
    peer: Peer,
    source: FileHandle,
    pub target: FileHandle,
    /// The bytes that were copied.
    pub done: AtomicU64,
    pub cancelled: AtomicBool,
    ended: Mutex<Option<Nfsstat4>>,
}

/// All copies, by the number in their state ids.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    table: Mutex<CopyTable>,
    /// Signals the end of a copy.
    ended: Condvar,
}

/// The copies behind their lock.
#[derive(Debug, Default)]
struct CopyTable {
    copies: HashMap<u64, Arc<Copying>>,
    last: u64,
    /// The server is stopping: no more copies begin.
    stopped: bool,
}

impl Copying {
    fn is_running(&self) -> bool {
        self.ended.lock().is_none()
    }
}

impl CopyTable {
    /// Adds a copy, if the bounds allow it.
    fn enter(
        &mut self,
        (client, peer): (ClientId, Peer),
        source: FileHandle,
        target: FileHandle,
    ) -> Option<(u64, Arc<Copying>)> {
        let mut running = Shares::new(MAX_COPIES);
        let mut of_client = 0;
        for copy in self.copies.values().filter(|copy| copy.is_running()) {
            running.charge(&copy.peer, 1);
            of_client += usize::from(copy.client == client);
        }
        let all = running.total();
        if self.stopped
            || of_client >= MAX_OF_CLIENT
            || !running.may_take(&peer, Standing::of_admitted(&peer), 1)
        {
            return None;
        }
        if self.copies.len() - all >= MAX_ENDED {
            let ended = self.copies.iter().filter(|(_, copy)| !copy.is_running()).map(|(number, _)| *number);
            let oldest = ended.min()?;
            self.copies.remove(&oldest);
        }
        self.last += 1;
        let copying = Arc::new(Copying {
            client,
            peer,
            source,
            target,
            done: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            ended: Mutex::new(None),
        });
        self.copies.insert(self.last, Arc::clone(&copying));
        Some((self.last, copying))
    }
}

impl Copies {
    /// Adds a copy with a new number, if the bounds allow it. `peer` is charged for it.
    pub(crate) fn enter(
        &self,
        (client, peer): (ClientId, Peer),
        source: FileHandle,
        target: FileHandle,
    ) -> Option<(u64, Arc<Copying>)> {
        self.table.lock().enter((client, peer), source, target)
    }

    /// Removes a copy that has ended, or didn't begin.
    pub(crate) fn remove(&self, number: u64) {
        self.table.lock().copies.remove(&number);
    }

    /// Cancels the copies from or to files that are withdrawn (`is_gone`).
    pub(super) fn withdraw(&self, is_gone: impl Fn(&FileHandle) -> bool) {
        for copy in self.table.lock().copies.values() {
            if is_gone(&copy.source) || is_gone(&copy.target) {
                copy.cancelled.store(true, Ordering::Release);
            }
        }
    }

    /// Cancels the copies of clients that have ended. A client that is back requests its copies again, and
    /// may write to the files when these are done.
    pub(super) fn end_clients(&self, ended: &[ClientId]) {
        if ended.is_empty() {
            return;
        }
        for copy in self.table.lock().copies.values().filter(|copy| ended.contains(&copy.client)) {
            copy.cancelled.store(true, Ordering::Release);
        }
    }

    /// OFFLOAD_STATUS.
    ///
    /// # Errors
    /// `BadStateid` if it isn't the state id of a copy of this client to this file.
    pub(crate) fn status(
        &self,
        client: ClientId,
        target: &FileHandle,
        id: &Stateid4,
    ) -> Result<OffloadStatus4ResOk> {
        let (_, copying) = self.find(client, target, id)?;
        let complete = copying.ended.lock().iter().copied().collect();
        Ok(OffloadStatus4ResOk { count: copying.done.load(Ordering::Acquire), complete: Array(complete) })
    }

    /// OFFLOAD_CANCEL.
    ///
    /// # Errors
    /// As for [`Copies::status`].
    pub(crate) fn cancel(&self, client: ClientId, target: &FileHandle, id: &Stateid4) -> Result<()> {
        let (number, copying) = self.find(client, target, id)?;
        copying.cancelled.store(true, Ordering::Release);
        // A running one ends by itself.
        if !copying.is_running() {
            self.remove(number);
        }
        Ok(())
    }

    /// Records the end of a copy.
    pub(crate) fn end(&self, copying: &Copying, status: Nfsstat4) {
        let table = self.table.lock();
        *copying.ended.lock() = Some(status);
        drop(table);
        self.ended.notify_all();
    }

    /// Cancels all copies and starts no more; whether they have ended `within` that time.
    pub(crate) fn stop(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut table = self.table.lock();
        table.stopped = true;
        table.copies.values().for_each(|copy| copy.cancelled.store(true, Ordering::Release));
        while table.copies.values().any(|copy| copy.is_running()) {
            if self.ended.wait_until(&mut table, until).timed_out() {
                return false;
            }
        }
        true
    }

    fn find(&self, client: ClientId, target: &FileHandle, id: &Stateid4) -> Result<(u64, Arc<Copying>)> {
        let number = number(id).ok_or(Nfsstat4::BadStateid)?;
        let copying = self.table.lock().copies.get(&number).cloned();
        let own = copying.filter(|copy| copy.client == client && copy.target == *target);
        own.map(|copy| (number, copy)).ok_or(Nfsstat4::BadStateid)
    }
}

/// The state id of a copy. Only the operations on copies accept it.
pub(crate) fn stateid(number: u64) -> Stateid4 {
    let mut other = *b"copy\0\0\0\0\0\0\0\0";
    other[4..].copy_from_slice(&number.to_be_bytes());
    Stateid4 { seqid: 1, other }
}

fn number(id: &Stateid4) -> Option<u64> {
    let number = id.other.strip_prefix(b"copy")?;
    (id.seqid <= 1).then(|| number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (ClientId, Peer) = (ClientId(1), Peer::V4([192, 0, 2, 100]));

    fn target() -> FileHandle {
        FileHandle::from_bytes(&[7; 30]).unwrap()
    }

    #[test]
    fn copies_are_bounded_and_the_oldest_ended_one_is_evicted() {
        let mut table = CopyTable::default();
        for host in 0..MAX_COPIES as u8 {
            table.enter((ClientId(host.into()), Peer::V4([192, 0, 2, host])), target(), target()).unwrap();
        }
        assert!(table.enter(ONE, target(), target()).is_none(), "too many of all");
        for _ in 0..MAX_ENDED + 10 {
            table.copies.values().for_each(|copy| *copy.ended.lock() = Some(Nfsstat4::Ok));
            table.enter(ONE, target(), target()).unwrap();
        }
        assert!(table.copies.len() <= MAX_ENDED + MAX_COPIES);
    }

    #[test]
    fn a_host_with_many_clients_gets_half_of_the_copies() {
        let mut table = CopyTable::default();
        let (greedy, other) = (Peer::V4([192, 0, 2, 1]), Peer::V4([192, 0, 2, 2]));
        let clients = (0..100).map(|client| (ClientId(client), greedy));
        let begun = clients.filter(|who| table.enter(*who, target(), target()).is_some()).count();
        assert_eq!(begun, MAX_COPIES / 2);
        for _ in 0..MAX_OF_CLIENT {
            table.enter((ClientId(200), other), target(), target()).unwrap();
        }
        assert!(table.enter((ClientId(200), other), target(), target()).is_none(), "too many of one client");
    }

    #[test]
    fn a_state_id_is_valid_for_its_client_and_file_only() {
        let copies = Copies::default();
        let (number, copying) = copies.table.lock().enter(ONE, target(), target()).unwrap();
        copying.done.store(5, Ordering::Release);
        let id = stateid(number);
        assert_eq!(copies.status(ClientId(1), &target(), &id).unwrap().count, 5);
        let other = FileHandle::from_bytes(&[8; 30]).unwrap();
        assert_eq!(copies.status(ClientId(2), &target(), &id), Err(Nfsstat4::BadStateid));
        assert_eq!(copies.status(ClientId(1), &other, &id), Err(Nfsstat4::BadStateid));
        assert_eq!(copies.status(ClientId(1), &target(), &stateid(number + 1)), Err(Nfsstat4::BadStateid));
        assert_eq!(
            copies.status(ClientId(1), &target(), &Stateid4 { seqid: 2, ..id }),
            Err(Nfsstat4::BadStateid)
        );
        copies.cancel(ClientId(1), &target(), &id).unwrap();
        assert!(copying.cancelled.load(Ordering::Acquire));
        *copying.ended.lock() = Some(Nfsstat4::Ok);
        let status = copies.status(ClientId(1), &target(), &id).unwrap();
        assert_eq!(status.complete, Array(vec![Nfsstat4::Ok]));
        copies.cancel(ClientId(1), &target(), &id).unwrap();
        assert_eq!(copies.status(ClientId(1), &target(), &id), Err(Nfsstat4::BadStateid));
    }

    #[test]
    fn copies_end_with_their_client() {
        let copies = Copies::default();
        let (_, own) = copies.enter(ONE, target(), target()).unwrap();
        let (_, other) = copies.enter((ClientId(2), ONE.1), target(), target()).unwrap();
        copies.end_clients(&[ClientId(1), ClientId(3)]);
        assert!(own.cancelled.load(Ordering::Acquire) && !other.cancelled.load(Ordering::Acquire));
    }

    #[test]
    fn stopping_waits_for_running_copies() {
        let copies = Arc::new(Copies::default());
        let (_, copying) = copies.table.lock().enter(ONE, target(), target()).unwrap();
        assert!(!copies.stop(Duration::ZERO), "one runs");
        assert!(copying.cancelled.load(Ordering::Acquire));
        assert!(copies.table.lock().enter((ClientId(2), ONE.1), target(), target()).is_none());
        let behind = Arc::clone(&copies);
        let thread = std::thread::spawn(move || behind.end(&copying, Nfsstat4::Ok));
        assert!(copies.stop(Duration::from_secs(60)));
        thread.join().unwrap();
    }
}
