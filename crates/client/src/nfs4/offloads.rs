//! The asynchronous copies of a client, and what is reported about them (RFC 7862 sections 4.8 and 16.1).
//! [`client_state::Offloads`] decides.

use std::time::Instant;

use client_state::{EndAnswer, OffloadRef, OffloadStep, Offloads};
use io::Stability;
use parking_lot::Mutex;
use proto::nfs4::{CbOffload4Args, Nfsstat4, OffloadInfo4, Verifier4, WriteResponse4};
use rpc::client::Policy;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use xdr::Decoder;

use super::convert;
use super::state::state_id;
use crate::types::Handle;

/// How a copy has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyEnd {
    pub(super) status: Nfsstat4,
    /// Bytes.
    pub(super) count: u64,
    /// How durable the bytes are, and the write verifier. OFFLOAD_STATUS doesn't tell.
    pub(super) written: Option<(Stability, Verifier4)>,
}

impl CopyEnd {
    fn reported(info: &OffloadInfo4) -> Self {
        match info {
            OffloadInfo4::Done(WriteResponse4 { count, committed, writeverf, .. }) => Self {
                status: Nfsstat4::Ok,
                count: *count,
                written: Some((convert::stability(*committed), *writeverf)),
            },
            OffloadInfo4::Failed(status, count) => {
                let status = Decoder::new(&status.to_be_bytes()).get().unwrap_or(Nfsstat4::Serverfault);
                Self { status, count: *count, written: None }
            }
        }
    }
}

/// The asynchronous copies of a client, and their waiters.
#[derive(Debug)]
pub(super) struct OffloadTable {
    offloads: Mutex<Offloads<Handle, CopyEnd>>,
    /// Told after each change that a waiter may wait for.
    changed: Notify,
}

impl OffloadTable {
    /// In a soft client a copy may make no progress for as long as a call may wait for its reply.
    pub(super) fn new(policy: &Policy) -> Self {
        let stall_limit = (!policy.hard).then(|| policy.timeout());
        Self { offloads: Mutex::new(Offloads::new(stall_limit)), changed: Notify::new() }
    }

    /// CB_OFFLOAD.
    pub(super) fn ended(&self, args: &CbOffload4Args<'_>) -> Nfsstat4 {
        let Some(file) = Handle::new(args.fh.0) else { return Nfsstat4::Badhandle };
        let end = CopyEnd::reported(&args.info);
        let answer = self.change(|offloads| offloads.ended(file, state_id(args.stateid), end));
        match answer {
            EndAnswer::Taken => Nfsstat4::Ok,
            EndAnswer::Unknown => Nfsstat4::BadStateid,
            EndAnswer::Later => Nfsstat4::Delay,
        }
    }

    /// A callback may have been lost.
    pub(super) fn doubt(&self) {
        self.change(|offloads| offloads.doubt(Instant::now()));
    }

    /// The server has lost the client's state. The session with this number is the first one since.
    pub(super) fn recover(&self, session: u64) {
        self.change(|offloads| offloads.recover(session, Instant::now()));
    }

    /// Changes the copies, and lets all waiters look.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Offloads<Handle, CopyEnd>) -> T) -> T {
        let changed = change(&mut self.offloads.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Ends with the next change.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// What to do about a copy now.
    pub(super) fn step(&self, offload: &OffloadRef<Handle>) -> OffloadStep<CopyEnd> {
        self.offloads.lock().step(offload, Instant::now())
    }

    /// Waits until the server has answered, or has lost what it was asked about with the client id.
    pub(super) async fn while_named<T>(
        &self,
        offload: &OffloadRef<Handle>,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let lost = async {
            loop {
                let changed = self.changed.notified();
                if !self.offloads.lock().is_named(offload) {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            () = lost => None,
            answer = answer => Some(answer),
        }
    }
}
