//! A server of two files, `from` and `to`, whose answers to COPY and what belongs to it a test scripts.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use proto::nfs4::{
    CB_OFFLOAD, CbCompound4Head, CbOffload4Args, Copy4Args, Copy4ResOk, Nfsstat4, OffloadInfo4,
    OffloadStatus4ResOk, Open4Args, OpenClaim4, Operation, StableHow4, Stateid4, WriteResponse4,
};
use samehost_client::{Error, File, OpenOptions, Options, Session, Version};
use xdr::{Array, Decoder, Encoder, Opaque};

use super::odd_v4::{
    CompoundRequest, OddServer, OddServerState, ScriptedAnswer, attributes_of, callback, callback_head,
    encoded, opened, session_id, soft,
};
use super::{BOUND, wait_for};

/// The bytes of each copy: enough for an asynchronous one.
pub const LENGTH: u64 = 8 << 20;
/// The server's write verifier.
pub const VERIFIER: [u8; 8] = *b"verifier";
/// The handle of the file that copies write.
pub const TARGET: &[u8] = b"the file to";

/// The state id of a copy.
pub const fn id(number: u8) -> Stateid4 {
    Stateid4 { seqid: 1, other: [number; 12] }
}

/// What the server of a test was asked.
#[derive(Default)]
pub struct Asked {
    odd: OnceLock<Arc<OddServerState>>,
    /// The handle of the file that was opened last.
    opened: Mutex<Vec<u8>>,
    /// `ca_synchronous` of each COPY.
    pub copies: Mutex<Vec<bool>>,
    statuses: AtomicU32,
    pub cancelled: Mutex<Vec<Stateid4>>,
    pub commits: AtomicU32,
    last_callback: AtomicU32,
}

impl Asked {
    pub fn copies(&self) -> usize {
        self.copies.lock().len()
    }

    pub fn statuses(&self) -> u32 {
        self.statuses.load(SeqCst)
    }

    /// The operations of a callback in the first session: the ends of these copies.
    pub fn cb_offload(&self, file: &[u8], ids: &[Stateid4], info: &OffloadInfo4) -> Vec<u8> {
        let sequence = self.last_callback.fetch_add(1, SeqCst) + 1;
        let mut to = Encoder::new();
        to.raw(&callback(session_id(1), sequence, 0, &[]));
        for id in ids {
            to.u32(CB_OFFLOAD);
            to.put(&CbOffload4Args { fh: Opaque(file), stateid: *id, info: info.clone() });
        }
        to.into_vec()
    }

    /// Sends a callback, and doesn't wait for the reply.
    pub fn send_all(&self, file: &[u8], ids: &[Stateid4], info: OffloadInfo4) {
        let operations = self.cb_offload(file, ids, &info);
        let head = offload_head(ids);
        self.odd.get().expect("the server").send_callback(&operations, &head);
    }

    pub fn send(&self, file: &[u8], id: Stateid4, info: OffloadInfo4) {
        self.send_all(file, &[id], info);
    }
}

/// The head of a callback with a CB_OFFLOAD for each of the copies.
pub fn offload_head(ids: &[Stateid4]) -> CbCompound4Head<'static> {
    // NFSv4.1 has no CB_OFFLOAD.
    CbCompound4Head { minor: 2, ..callback_head(ids.len() as u32 + 1) }
}

/// A server with a script for COPY and what belongs to it.
pub struct CopyServer {
    pub odd: OddServer,
    pub asked: Arc<Asked>,
}

impl CopyServer {
    pub fn new(
        script: impl Fn(&Asked, &CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> Self {
        let asked = Arc::<Asked>::default();
        let by_server = asked.clone();
        let odd = OddServer::new(move |request| by_server.answer(request, &script));
        assert!(asked.odd.set(odd.shared.clone()).is_ok());
        Self { odd, asked }
    }

    pub async fn files_by(&self, options: Options) -> (Session, File, File) {
        let session = Session::connect(&self.odd.url(), options).await.unwrap();
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let to = session.open(b"to", &OpenOptions::new().write(true)).await.unwrap();
        (session, from, to)
    }

    /// The files of a hard session.
    pub async fn files(&self) -> (Session, File, File) {
        self.files_by(soft().version(Version::V4_2).hard(true)).await
    }

    /// Copies [`LENGTH`] bytes.
    pub async fn copy(&self) -> Result<u64, Error> {
        let (_session, from, to) = self.files().await;
        tokio::time::timeout(BOUND, from.copy_range(0, &to, 0, LENGTH)).await.expect("an end")
    }

    pub async fn wait_for_cancel(&self, of: &[Stateid4]) {
        wait_for("OFFLOAD_CANCEL", || self.asked.cancelled.lock().len() >= of.len()).await;
        assert_eq!(*self.asked.cancelled.lock(), of);
    }
}

impl Asked {
    fn answer(
        &self,
        request: &CompoundRequest<'_>,
        script: &(dyn Fn(&Self, &CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync),
    ) -> ScriptedAnswer {
        let mut args = Decoder::new(request.args);
        match request.operation {
            Operation::Open => {
                let open: Open4Args<'_> = args.get().unwrap();
                if let OpenClaim4::Null(name) = open.claim {
                    *self.opened.lock() = [b"the file ", name.0].concat();
                }
                return ScriptedAnswer::Ok(opened([9; 16], None));
            }
            Operation::Getfh if !self.opened.lock().is_empty() => {
                return ScriptedAnswer::Ok(encoded(&Opaque::<128>(&self.opened.lock())));
            }
            Operation::Getattr if !self.opened.lock().is_empty() => {
                return ScriptedAnswer::Ok(attributes_of(&args.get().unwrap(), 1));
            }
            Operation::Copy => {
                let copy: Copy4Args<'_> = args.get().unwrap();
                assert!(copy.consecutive && copy.count == LENGTH);
                self.copies.lock().push(copy.synchronous);
            }
            Operation::OffloadStatus => drop(self.statuses.fetch_add(1, SeqCst)),
            Operation::OffloadCancel => self.cancelled.lock().push(args.get().unwrap()),
            Operation::Commit => drop(self.commits.fetch_add(1, SeqCst)),
            _ => {}
        }
        match (request.operation, script(self, request)) {
            (Operation::Commit, ScriptedAnswer::Good) => ScriptedAnswer::Ok(VERIFIER.to_vec()),
            (_, answer) => answer,
        }
    }
}

pub fn written(count: u64, committed: StableHow4) -> WriteResponse4 {
    WriteResponse4 { callback_id: Array(Vec::new()), count, committed, writeverf: VERIFIER }
}

/// COPY's result: it goes on.
pub fn begun(id: Stateid4) -> ScriptedAnswer {
    let response = WriteResponse4 { callback_id: Array(vec![id]), ..written(0, StableHow4::Unstable) };
    ScriptedAnswer::Ok(encoded(&Copy4ResOk { response, consecutive: true, synchronous: false }))
}

/// COPY's result: it is done.
pub fn copied(count: u64) -> ScriptedAnswer {
    let response = written(count, StableHow4::FileSync);
    ScriptedAnswer::Ok(encoded(&Copy4ResOk { response, consecutive: true, synchronous: true }))
}

/// OFFLOAD_STATUS's result.
pub fn status(count: u64, complete: Option<Nfsstat4>) -> ScriptedAnswer {
    let complete = Array(complete.into_iter().collect());
    ScriptedAnswer::Ok(encoded(&OffloadStatus4ResOk { count, complete }))
}

/// The outcome in a CB_OFFLOAD of a copy that is done.
pub fn done(count: u64) -> OffloadInfo4 {
    OffloadInfo4::Done(written(count, StableHow4::FileSync))
}
