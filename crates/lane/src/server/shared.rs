//! The state that the threads of a lane server share, and how a waiting connection becomes a lane.

use super::acceptor::{Acceptor, WaitingConnection};
use super::call_queue::{CallQueue, ClientCall};
use super::grant_budget::{GrantBudget, share_of};
use super::lane::{self, LaneShared};
use super::lanes::{Lanes, Room};
use super::{Bound, GrantService, LaneInfo, LaneOptions, NfsConnection, NonceOutcome};
use crate::message::{self, HandshakeRefusal, LaneReply};
use crate::nonce::Nonce;
use crate::peer::SharedNamespaces;
use crate::socket;
use parking_lot::{Condvar, Mutex};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// The stack of a lane's thread in bytes: a datagram, the service's paths, and a reserve.
const STACK: usize = 512 * 1024;
/// The reason for the end of a lane that never began.
const NOT_DELIVERED: &str = "the client disconnected before the reply";
/// The reason for the end of a displaced lane.
const DISPLACED: &str = "its user had the most lanes, and another user wanted one";

/// The state that the server's threads share.
pub(super) struct ServerShared {
    pub(super) options: LaneOptions,
    pub(super) service: Arc<dyn GrantService>,
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) wake: OwnedFd,
    pub(super) acceptor: Mutex<Acceptor>,
    pub(super) lanes: Mutex<Lanes>,
    pub(super) budget: Arc<GrantBudget>,
    pub(super) lane_ended: Condvar,
    pub(super) calls: Option<CallQueue>,
}

impl ServerShared {
    /// How long the acceptor's thread may sleep; `None` while there is no connection.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let expiry =
            self.acceptor.lock().next_expiry().map(|at| at.saturating_duration_since(Instant::now()));
        let receipts = (!self.lanes.lock().is_empty()).then(|| self.options.limits.receipt / 4);
        // One millisecond more, so that the deadline has passed.
        expiry.into_iter().chain(receipts).min().map(|wait| wait + Duration::from_millis(1))
    }

    pub(super) fn all_lanes(&self) -> Vec<Arc<LaneShared>> {
        self.lanes.lock().all().cloned().collect()
    }

    /// Reads the receipts of all lanes, and ends lanes whose clients are late.
    pub(super) fn look_at_receipts(&self) {
        let now = Instant::now();
        self.all_lanes().iter().for_each(|lane| lane.check_receipts(now));
    }

    pub(super) fn each(&self, which: impl Fn(&LaneInfo) -> bool, act: impl Fn(&LaneShared)) -> usize {
        let lanes = self.all_lanes();
        let chosen = lanes.iter().filter(|lane| which(&lane.info()));
        chosen.map(|lane| act(lane)).count()
    }

    /// Makes a lane of a connection whose nonce has arrived. `Local` means that the message is in its socket.
    /// `stands` tells whether the NFS connection does; it is called once
    /// [`LaneServer::connection_closed`](super::LaneServer::connection_closed) finds the lane.
    pub(super) fn bind(
        self: &Arc<Self>,
        waiting: WaitingConnection,
        nonce: Nonce,
        nfs: NfsConnection,
        stands: impl FnOnce() -> bool,
    ) -> NonceOutcome {
        let WaitingConnection { socket, process, version, through, .. } = waiting;
        let refuse = |socket: &OwnedFd, refusal, answer| {
            let _ = socket::send(socket, &message::encode(&LaneReply::Refused(refusal)), &[]);
            answer
        };
        let limits = self.options.limits;
        let share = share_of(&process);
        let room = {
            let mut lanes = self.lanes.lock();
            if lanes.stopping {
                return refuse(&socket, HandshakeRefusal::Draining, NonceOutcome::Draining);
            }
            lanes.take(share)
        };
        let Some(Room { number, displaced }) = room else {
            return refuse(&socket, HandshakeRefusal::TooMany, NonceOutcome::TooMany);
        };
        if let Some(displaced) = displaced {
            debug!(lane = displaced.bound.lane, "ends for another user's: its own has the most");
            displaced.end(DISPLACED);
        }
        let namespaces = SharedNamespaces::of(&socket, &process);
        let bound = Bound { lane: number, connection: nfs.number, nfs_peer: nfs.peer, process, namespaces };
        let lane = match LaneShared::new(bound, through, socket, limits, Arc::clone(&self.budget)) {
            Ok(lane) => Arc::new(lane),
            Err(error) => {
                warn!("lane: no memory for the interlock: {error}");
                self.lanes.lock().give_back(share);
                return NonceOutcome::Failed;
            }
        };
        {
            let mut lanes = self.lanes.lock();
            if lanes.stopping {
                lanes.give_back(share);
                return NonceOutcome::Draining;
            }
            lanes.insert(Arc::clone(&lane));
        }
        if !stands() {
            self.forget(number);
            return NonceOutcome::Failed;
        }
        // The thread comes before the message: a client that receives Local is served.
        let shared = Arc::clone(self);
        let (sender, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let its = Arc::clone(&lane);
        let thread =
            std::thread::Builder::new().name(format!("lane-{number}")).stack_size(STACK).spawn(move || {
                let _gone = Forget { shared: &shared, number };
                if wait.recv().is_ok() {
                    lane::serve(&its, &*shared.service, &|| shared.look_at_receipts());
                }
            });
        if let Err(error) = thread {
            warn!("lane: no thread for a lane: {error}");
            self.forget(number);
            return NonceOutcome::Failed;
        }
        if !lane.send_local(version, nonce, self.options.instance) {
            lane.end(NOT_DELIVERED);
            return NonceOutcome::Failed;
        }
        debug!(lane = number, process = ?lane.bound.process, nfs_peer = %nfs.peer, "lane bound");
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if sender.send(()).is_ok() { NonceOutcome::Local } else { NonceOutcome::Failed }
    }

    /// Makes a lane of a client that the server has called.
    pub(super) fn bind_called(self: &Arc<Self>, waiting: WaitingConnection, call: &ClientCall) -> bool {
        let fresh = {
            let mut acceptor = self.acceptor.lock();
            acceptor.spend_called(call.nonce.commitment(), &waiting.process, Instant::now())
        };
        let stands = || self.calls.as_ref().is_some_and(CallQueue::client_is_connected);
        fresh && self.bind(waiting, call.nonce, call.nfs, stands) == NonceOutcome::Local
    }

    fn forget(&self, number: u64) {
        let gone = self.lanes.lock().remove(number);
        drop(gone);
        self.lane_ended.notify_all();
    }

    pub(super) fn wait_for_lanes(&self, deadline: Instant) {
        let mut lanes = self.lanes.lock();
        while !lanes.is_empty() {
            if self.lane_ended.wait_until(&mut lanes, deadline).timed_out() {
                warn!("lane: {} lane threads are still in the filesystem", lanes.len());
                return;
            }
        }
    }
}

/// Removes a lane when its thread ends, also after a panic.
struct Forget<'a> {
    shared: &'a ServerShared,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.forget(self.number);
    }
}
