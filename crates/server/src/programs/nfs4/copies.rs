//! Asynchronous copies (RFC 7862 sections 4, 15.2, 15.8, 15.9, 16.1).
//!
//! 1. A long COPY of a client that can be called back and doesn't insist on a synchronous one gets a thread
//!    and a state id.
//! 2. OFFLOAD_STATUS reports its progress. OFFLOAD_CANCEL stops it; the bytes that were copied stay.
//! 3. CB_OFFLOAD reports its end. The result can be queried until the client has answered CB_OFFLOAD, or
//!    until another copy needs the entry.
//!
//! The copies end when the server stops: a client that gets CB_OFFLOAD by then continues with another COPY,
//! as after a restart.
//!
//! The numbers of copies of a client and of all clients are bounded. Above the bounds COPY is synchronous.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairness::{Peer, Shares, Standing};
use parking_lot::{Condvar, Mutex};
use proto::nfs4::{
    CB_OFFLOAD, CbOffload4Args, Nfsstat4, OffloadInfo4, OffloadStatus4ResOk, StableHow4, Stateid4,
    WriteResponse4,
};
use state::ClientId;
use store::{FileHandle, Node, Wcc};
use xdr::{Array, Opaque};

use super::callbacks::CallbackOperation;
use super::status::{self, Result};
use crate::authorization::access::ExportAccess;
use crate::service::Service;

/// The most copies at a time: each has a thread.
const MAX_COPIES: usize = 16;
/// The most copies of one client at a time.
const MAX_OF_CLIENT: usize = 4;
/// The most copies that have ended and are remembered.
const MAX_ENDED: usize = 256;
/// The bytes that are copied between two checks for cancellation.
const CHUNK: u64 = 16 << 20;

/// One end of a copy.
pub(super) struct End {
    pub admitted: ExportAccess,
    pub node: Arc<Node>,
    pub offset: u64,
}

/// A copy that is requested.
pub(super) struct CopyRequest {
    pub client: ClientId,
    /// The peer in whose share of all copies it counts.
    pub peer: Peer,
    pub from: End,
    pub to: End,
    pub count: u64,
}

/// A copy that runs or has ended.
#[derive(Debug)]
struct Copying {
    client: ClientId,
    peer: Peer,
    source: FileHandle,
    target: FileHandle,
    done: AtomicU64,
    cancelled: AtomicBool,
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

/// Starts a copy; `None` if the bounds don't allow it or there is no thread for it.
pub(super) fn start(service: &Arc<Service>, request: CopyRequest) -> Option<Stateid4> {
    let (source, target) = (*request.from.node.handle(), *request.to.node.handle());
    let (number, copying) =
        service.state.copies.table.lock().enter((request.client, request.peer), source, target)?;
    let behind = Arc::clone(service);
    let thread = std::thread::Builder::new().name("copy".into()).spawn(move || {
        let verifier = behind.verifier.get();
        let status = run(&behind, &request, &copying);
        behind.state.copies.end(&copying, status);
        send_cb_offload(&behind, number, &copying, status, verifier);
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for a copy");
        service.state.copies.table.lock().copies.remove(&number);
        return None;
    }
    Some(stateid(number))
}

impl Copies {
    /// Cancels the copies from or to files that are withdrawn (`is_gone`).
    pub(super) fn withdraw(&self, is_gone: impl Fn(&FileHandle) -> bool) {
        for copy in self.table.lock().copies.values() {
            if is_gone(&copy.source) || is_gone(&copy.target) {
                copy.cancelled.store(true, Ordering::Release);
            }
        }
    }

    /// OFFLOAD_STATUS.
    ///
    /// # Errors
    /// `BadStateid` if it isn't the state id of a copy of this client to this file.
    pub(super) fn status(
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
    pub(super) fn cancel(&self, client: ClientId, target: &FileHandle, id: &Stateid4) -> Result<()> {
        let (number, copying) = self.find(client, target, id)?;
        copying.cancelled.store(true, Ordering::Release);
        // A running one ends by itself.
        if !copying.is_running() {
            self.table.lock().copies.remove(&number);
        }
        Ok(())
    }

    /// Records the end of a copy.
    fn end(&self, copying: &Copying, status: Nfsstat4) {
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
fn stateid(number: u64) -> Stateid4 {
    let mut other = *b"copy\0\0\0\0\0\0\0\0";
    other[4..].copy_from_slice(&number.to_be_bytes());
    Stateid4 { seqid: 1, other }
}

fn number(id: &Stateid4) -> Option<u64> {
    let number = id.other.strip_prefix(b"copy")?;
    (id.seqid <= 1).then(|| number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Copies until the end, cancellation or a failure; the status of the copy.
fn run(service: &Service, request: &CopyRequest, copying: &Copying) -> Nfsstat4 {
    let copied = || -> std::result::Result<(), store::Error> {
        let user_context = request.to.admitted.user_context()?;
        loop {
            let done = copying.done.load(Ordering::Acquire);
            if done >= request.count || copying.cancelled.load(Ordering::Acquire) {
                return Ok(());
            }
            for end in [&request.from, &request.to] {
                // The exports may have changed since the one check admitted the client.
                if !service.access.still_admits(&end.admitted) {
                    return Err(store::Error::Stale);
                }
                user_context.node(end.node.handle().as_bytes())?;
            }
            let from = (&*request.from.node, request.from.offset + done);
            let to = (&*request.to.node, request.to.offset + done);
            let more =
                user_context.copy_range(from, to, CHUNK.min(request.count - done), &mut Wcc::default())?;
            if more == 0 {
                // The source has become shorter.
                return Ok(());
            }
            copying.done.fetch_add(more, Ordering::AcqRel);
        }
    };
    let result = copied().err().map_or(Nfsstat4::Ok, status::of_store);
    // The thread must not end as the user.
    store::restore_process_ids();
    result
}

/// Reports the end of a copy by CB_OFFLOAD.
fn send_cb_offload(
    service: &Arc<Service>,
    number: u64,
    copying: &Copying,
    status: Nfsstat4,
    verifier: [u8; 8],
) {
    let count = copying.done.load(Ordering::Acquire);
    let info = match status {
        Nfsstat4::Ok => OffloadInfo4::Done(WriteResponse4 {
            callback_id: Array(Vec::new()),
            count,
            committed: StableHow4::FileSync,
            writeverf: verifier,
        }),
        failed => OffloadInfo4::Failed(failed as u32, count),
    };
    let args = CbOffload4Args { fh: Opaque(copying.target.as_bytes()), stateid: stateid(number), info };
    let taken = Arc::downgrade(service);
    let done = move |answer: std::result::Result<Vec<u8>, _>| {
        if let (Ok(_), Some(service)) = (answer, taken.upgrade()) {
            service.state.copies.table.lock().copies.remove(&number);
        }
    };
    service.state.callbacks.send(copying.client, CallbackOperation::new(CB_OFFLOAD, &args), Box::new(done));
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
