//! The threads of asynchronous copies (RFC 7862 section 15.2.3): each copies until the end, cancellation or a
//! failure, and reports that by CB_OFFLOAD (section 16.1).
//!
//! The copies end when the server stops: a client that gets CB_OFFLOAD by then continues with another COPY,
//! as after a restart.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairness::Peer;
use proto::nfs4::{CB_OFFLOAD, CbOffload4Args, Nfsstat4, OffloadInfo4, StableHow4, Stateid4, WriteResponse4};
use state::ClientId;
use store::{Node, Wcc};
use xdr::{Array, Opaque};

use super::status;
use crate::authorization::access::ExportAccess;
use crate::service::Service;
use crate::service::nfs4_state::callbacks::CallbackOperation;
use crate::service::nfs4_state::copies::{self, Copying};

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

/// Starts a copy; `None` if the bounds don't allow it or there is no thread for it.
pub(super) fn start(service: &Arc<Service>, request: CopyRequest) -> Option<Stateid4> {
    let (source, target) = (*request.from.node.handle(), *request.to.node.handle());
    let (number, copying) = service.state.copies.enter((request.client, request.peer), source, target)?;
    let behind = Arc::clone(service);
    let thread = std::thread::Builder::new().name("copy".into()).spawn(move || {
        let verifier = behind.verifier.get();
        let status = run(&behind, &request, &copying);
        behind.state.copies.end(&copying, status);
        send_cb_offload(&behind, number, &copying, status, verifier);
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for a copy");
        service.state.copies.remove(number);
        return None;
    }
    Some(copies::stateid(number))
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
    let args =
        CbOffload4Args { fh: Opaque(copying.target.as_bytes()), stateid: copies::stateid(number), info };
    let taken = Arc::downgrade(service);
    let done = move |answer: std::result::Result<Vec<u8>, _>| {
        if let (Ok(_), Some(service)) = (answer, taken.upgrade()) {
            service.state.copies.remove(number);
        }
    };
    service.state.callbacks.send(copying.client, CallbackOperation::new(CB_OFFLOAD, &args), Box::new(done));
}
