//! One lane: the thread that serves it, and the operations of other threads on it.
//!
//! A lane's life:
//! 1. [`LaneShared::new`] makes it from a waiting connection whose nonce has arrived.
//! 2. [`LaneShared::send_local`] sends Local.
//! 3. [`serve`] answers Opens on a thread of its own, until the client hangs up, breaks the protocol, or
//!    another thread calls [`LaneShared::end`].
//! 4. The remaining grants are released when `serve` returns, also if it panics.
//!
//! Only the receive at the top of the loop waits for the client. A reply that finds the client's socket full
//! ends the lane.

use super::grant_budget::{GrantBudget, Reservation, share_of};
use super::{Bound, GrantService, LaneInfo, LaneLimits, OpenGrant};
use crate::grant_table::{GrantTable, Purpose};
use crate::interlock::{Control, ControlState, SLOTS, ServerSide};
use crate::memory::InterlockMemory;
use crate::message::{self, LaneReply, LaneRequest, MAX_MESSAGE, PrefetchedFile};
use crate::nonce::{Instance, Nonce};
use crate::peer::may_act_as;
use crate::request::{Access, LaneCredential, MAX_HANDLE, OpenRequest, OpenStatus, PrefetchTargets, Target};
use crate::socket::{self, Received};
use fairness::Peer;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::any::Any;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};
use sys::barrier::{BarrierScope, is_offered};
use tracing::debug;
use xdr::Encoder;

/// The number of bytes of a prefetched file that are read ahead.
const READ_AHEAD: u64 = 128 << 10;

/// State that the server keeps while a grant is open.
type ServiceState = Option<Box<dyn Any + Send>>;

/// A lane, as shared by its own thread and the server's other threads.
pub(super) struct LaneShared {
    pub(super) bound: Bound,
    /// The peer that the lane and its grants are charged to.
    pub(super) share: Peer,
    budget: Arc<GrantBudget>,
    through: String,
    since: SystemTime,
    socket: OwnedFd,
    interlock: ServerSide<InterlockMemory>,
    /// The server's copy of the control word, which the client may have overwritten in the shared memory.
    control: Mutex<Control>,
    grants: Mutex<GrantTable<ServiceState>>,
    granted: AtomicU64,
    refused: AtomicU64,
    /// Whether a request is being served.
    busy: AtomicBool,
    /// Whether the client has sent Async.
    asynchronous: AtomicBool,
    /// Why this server ended the lane, if it did.
    why: OnceLock<&'static str>,
    limits: LaneLimits,
}

/// Why a lane ended, for the log.
#[derive(Debug, thiserror::Error)]
enum LaneEnd {
    #[error("the client hung up")]
    HangUp,
    #[error("the client sent {0}")]
    Violation(&'static str),
    #[error("the client sent no message of the protocol: {0}")]
    Garbage(#[from] xdr::Error),
    #[error("the client makes no sense: {0}")]
    ProtocolError(#[from] crate::grant_table::ProtocolError),
    #[error("the socket failed: {0}")]
    Socket(#[from] rustix::io::Errno),
}

impl LaneShared {
    /// A lane over this connection.
    pub(super) fn new(
        bound: Bound,
        through: String,
        socket: OwnedFd,
        limits: LaneLimits,
        budget: Arc<GrantBudget>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            share: share_of(&bound.process),
            bound,
            budget,
            through,
            since: SystemTime::now(),
            socket,
            interlock: ServerSide::new(
                InterlockMemory::create()?,
                if is_offered(BarrierScope::Host) { SLOTS } else { 0 },
            ),
            control: Mutex::new(Control::FIRST),
            grants: Mutex::new(GrantTable::new(limits.lane_grants, limits.outstanding)),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            asynchronous: AtomicBool::new(false),
            why: OnceLock::new(),
            limits,
        })
    }

    /// Sends Local to the client. Returns whether it was sent.
    pub(super) fn send_local(&self, version: u32, nonce: Nonce, instance: Instance) -> bool {
        let local = LaneReply::Local {
            version,
            nonce,
            instance,
            grants: self.limits.lane_grants,
            outstanding: self.limits.outstanding,
            slots: self.interlock.slots() as u32,
        };
        socket::send(&self.socket, &message::encode(&local), &[self.interlock.words().as_fd()]).is_ok()
    }

    /// A snapshot for the status.
    pub(super) fn info(&self) -> LaneInfo {
        LaneInfo {
            bound: self.bound.clone(),
            through: self.through.clone(),
            since: self.since,
            grants: self.grants.lock().open() as u64,
            granted: self.granted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            in_flight: self.in_flight(),
        }
    }

    /// The I/O in flight as counted by the client; exact after a barrier.
    pub(super) fn in_flight(&self) -> u64 {
        self.interlock.in_flight()
    }

    /// The number of open grants; `None` while a request is being served.
    pub(super) fn idle_grants(&self) -> Option<usize> {
        (!self.busy.load(Relaxed)).then(|| self.grants.lock().open())
    }

    /// Ends all grants given so far. The lane stays.
    pub(super) fn recall(&self) {
        let generation = {
            let mut control = self.control.lock();
            control.generation += 1;
            self.interlock.publish(*control);
            control.generation
        };
        self.tell(&LaneReply::Recall { generation });
    }

    /// Refuses new grants and new I/O.
    pub(super) fn begin_drain(&self) {
        self.publish(ControlState::Draining);
        self.tell(&LaneReply::Drain);
    }

    /// Ends the lane by shutting its socket down, which its thread notices. `why` is the reason in words for
    /// the status.
    pub(super) fn end(&self, why: &'static str) {
        let _ = self.why.set(why); // the first reason is the reason
        self.publish(ControlState::Gone);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Ends the lane if a grant has waited too long for its receipt.
    pub(super) fn check_receipts(&self, now: Instant) {
        let mut grants = self.grants.lock();
        let nonsense = self.note_receipts(&mut grants).is_err();
        let overdue = grants.overdue(now, self.limits.receipt);
        drop(grants);
        if nonsense || overdue {
            debug!(lane = self.bound.lane, "the client doesn't acknowledge its grants: ending the lane");
            self.end("the client acknowledged its grants wrongly or not at all");
        }
    }

    /// Reads the number of grants that the client has acknowledged.
    fn note_receipts(
        &self,
        grants: &mut GrantTable<ServiceState>,
    ) -> Result<(), crate::grant_table::ProtocolError> {
        let news = grants.received(self.interlock.received())?;
        self.budget.delivered(self.share, news);
        Ok(())
    }

    /// Reserves room for one more file of this user, in the lane and in its owner's share of all lanes.
    fn reserve(&self, user: u32, wanted: Purpose) -> Result<Option<Reservation<'_>>, LaneEnd> {
        let mut grants = self.grants.lock();
        self.note_receipts(&mut grants)?;
        let room = grants.has_room(user, wanted);
        drop(grants);
        Ok(if room { self.budget.reserve(self.share) } else { None })
    }

    /// Takes the last grant back, which couldn't be sent.
    fn take_back(&self, grants: &mut GrantTable<ServiceState>, grant: u64) -> ServiceState {
        let undelivered = grants.undelivered();
        let held = grants.take_back(grant);
        // A lying client may have acknowledged it already.
        self.budget.delivered(self.share, undelivered - grants.undelivered());
        self.budget.released(self.share, usize::from(held.is_some()));
        held.flatten()
    }

    /// Releases all grants.
    fn release_all(&self) {
        let mut grants = self.grants.lock();
        self.budget.delivered(self.share, grants.undelivered());
        self.budget.released(self.share, grants.open());
        let left: Vec<ServiceState> = grants.end().collect();
        drop(grants);
        drop(left);
    }

    fn publish(&self, state: ControlState) {
        let mut control = self.control.lock();
        // Draining never comes after gone.
        if control.state as u32 <= state as u32 {
            control.state = state;
            self.interlock.publish(*control);
        }
    }

    /// Sends an unsolicited message. Ends the lane of a client that doesn't read it.
    fn tell(&self, reply: &LaneReply<'_>) {
        if socket::send(&self.socket, &message::encode(reply), &[]).is_err() {
            self.end("the client doesn't read its messages");
        }
    }

    fn release(&self, releases: &[u64]) -> Result<(), LaneEnd> {
        // The server's state is dropped after the lock.
        let mut held = Vec::with_capacity(releases.len());
        let mut grants = self.grants.lock();
        let all = releases.iter().try_for_each(|id| grants.release(*id).map(|its| held.push(its)));
        drop(grants);
        self.budget.released(self.share, held.len());
        Ok(all?)
    }
}

/// The reason for the end of a lane that neither its client nor its server has ended: a bug.
const PANICKED: &str = "the server failed";

/// Serves a lane to its end, on the lane's own thread. `refresh` reads the receipts of all lanes.
pub(super) fn serve(lane: &LaneShared, service: &dyn GrantService, refresh: &dyn Fn()) {
    /// Also if the service panics where the panic isn't caught.
    struct Ending<'a>(&'a LaneShared);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.end(PANICKED);
            self.0.release_all();
        }
    }
    let _ending = Ending(lane);
    let mut buffer = [0; MAX_MESSAGE + 1];
    let mut reply = Encoder::new();
    loop {
        if let Err(end) = serve_one(lane, service, refresh, &mut buffer, &mut reply) {
            debug!(lane = lane.bound.lane, %end, "lane ended");
            let why = lane.why.get().map_or_else(|| end.to_string(), |why| (*why).to_owned());
            service.ended(&lane.bound, &why);
            return;
        }
    }
}

fn serve_one(
    lane: &LaneShared,
    service: &dyn GrantService,
    refresh: &dyn Fn(),
    buffer: &mut socket::Buffer,
    reply: &mut Encoder,
) -> Result<(), LaneEnd> {
    lane.busy.store(false, Relaxed);
    let length = match socket::receive_bytes(&lane.socket, buffer, true)? {
        Received::Datagram { length, .. } => length,
        Received::HangUp => return Err(LaneEnd::HangUp),
        Received::Violation(what) => return Err(LaneEnd::Violation(what)),
    };
    lane.busy.store(true, Relaxed);
    match message::decode(&buffer[..length])? {
        LaneRequest::Register { .. } => Err(LaneEnd::Violation("a second Register")),
        LaneRequest::Release(releases) => lane.release(&releases),
        LaneRequest::Open { serial, releases, target, access, credential } => {
            lane.release(&releases)?;
            match open(lane, service, refresh, &target, access, &credential)? {
                Ok(decided) => send_grant(lane, service, serial, credential.uid, decided, reply),
                Err(status) => refuse(lane, serial, status, reply),
            }
        }
        LaneRequest::Prefetch { serial, releases, targets, credential } => {
            lane.release(&releases)?;
            prefetch(lane, service, serial, &targets, &credential, reply)
        }
        LaneRequest::Async => {
            // Once: every call of the NFS connection checks for it.
            if !lane.asynchronous.swap(true, Relaxed) {
                service.async_from_now(&lane.bound);
            }
            Ok(())
        }
        LaneRequest::Calls { serial, releases } => {
            lane.release(&releases)?;
            send_call_socket(lane, service, serial, reply)
        }
    }
}

/// Sends a call socket, or the reason why there is none.
fn send_call_socket(
    lane: &LaneShared,
    service: &dyn GrantService,
    serial: u32,
    reply: &mut Encoder,
) -> Result<(), LaneEnd> {
    let opened = if lane.control.lock().state == ControlState::Live {
        catch_unwind(AssertUnwindSafe(|| service.call_socket(&lane.bound))).unwrap_or(Err(OpenStatus::Io))
    } else {
        Err(OpenStatus::Draining)
    };
    let theirs = match opened {
        Ok(theirs) => theirs,
        Err(status) => return send_status(lane, serial, status, reply),
    };
    reply.truncate(0);
    reply.put(&LaneReply::CallSocket { serial });
    match socket::send(&lane.socket, reply.as_slice(), &[theirs.as_fd()]) {
        Err(Errno::TOOMANYREFS) => send_status(lane, serial, OpenStatus::TooMany, reply),
        sent => Ok(sent?),
    }
}

/// Answers an Open with a status.
fn refuse(lane: &LaneShared, serial: u32, status: OpenStatus, reply: &mut Encoder) -> Result<(), LaneEnd> {
    lane.refused.fetch_add(1, Relaxed);
    send_status(lane, serial, status, reply)
}

/// Answers a request with a status.
fn send_status(
    lane: &LaneShared,
    serial: u32,
    status: OpenStatus,
    reply: &mut Encoder,
) -> Result<(), LaneEnd> {
    reply.truncate(0);
    reply.put(&LaneReply::NotOpened { serial, status });
    Ok(socket::send(&lane.socket, reply.as_slice(), &[])?)
}

/// A file that is about to be granted.
struct Decided<'a> {
    /// The generation in which the decision was made.
    generation: u64,
    granted: OpenGrant,
    reservation: Reservation<'a>,
}

/// Decides about an Open.
fn open<'a>(
    lane: &'a LaneShared,
    service: &dyn GrantService,
    refresh: &dyn Fn(),
    target: &Target<'_>,
    access: Access,
    credential: &LaneCredential,
) -> Result<Result<Decided<'a>, OpenStatus>, LaneEnd> {
    // Read before the check, so that a recall during the check ends this grant.
    let control = *lane.control.lock();
    if control.state != ControlState::Live {
        return Ok(Err(OpenStatus::Draining));
    }
    // Checked before room is reserved, so that refused requests don't use up other users' room.
    if !may_act_as(&lane.bound.process, credential) {
        return Ok(Err(OpenStatus::Denied));
    }
    let mut reservation = lane.reserve(credential.uid, Purpose::Open)?;
    if reservation.is_none() {
        // Grants whose receipts haven't been read yet may hold the room.
        refresh();
        reservation = lane.reserve(credential.uid, Purpose::Open)?;
    }
    // No file was looked up or created.
    let Some(reservation) = reservation else { return Ok(Err(OpenStatus::TooMany)) };
    let granted = ask(lane, service, &OpenRequest { target: *target, access, credential });
    Ok(granted.map(|granted| Decided { generation: control.generation, granted, reservation }))
}

/// Calls the service. A panic over one file must not end the lane, let alone the others.
fn ask(
    lane: &LaneShared,
    service: &dyn GrantService,
    request: &OpenRequest<'_>,
) -> Result<OpenGrant, OpenStatus> {
    catch_unwind(AssertUnwindSafe(|| service.open(&lane.bound, request)))
        .unwrap_or(Err(OpenStatus::Io))
        .and_then(
            |granted| if granted.handle.len() <= MAX_HANDLE { Ok(granted) } else { Err(OpenStatus::Io) },
        )
}

/// Sends a grant, or takes it back.
fn send_grant(
    lane: &LaneShared,
    service: &dyn GrantService,
    serial: u32,
    user: u32,
    decided: Decided<'_>,
    reply: &mut Encoder,
) -> Result<(), LaneEnd> {
    let Decided { generation, granted, reservation } = decided;
    let OpenGrant { file, handle, attributes, directory, held, .. } = granted;
    // Room was reserved before the file was opened, and only this thread grants.
    let Ok(grant) = lane.grants.lock().give(held, user, Purpose::Open, Instant::now()) else { return Ok(()) };
    reservation.commit();
    reply.truncate(0);
    reply.put(&LaneReply::Opened {
        serial,
        grant,
        generation,
        verifier: service.verifier(),
        handle: &handle,
        attributes,
        directory,
    });
    if let Err(error) = socket::send(&lane.socket, reply.as_slice(), &[file.as_fd()]) {
        let held = lane.take_back(&mut lane.grants.lock(), grant);
        drop(held);
        if error != Errno::TOOMANYREFS {
            return Err(error.into());
        }
        // The kernel bounds the descriptors that a user has in flight, and counts those of the user's other
        // programs, too.
        return refuse(lane, serial, OpenStatus::TooMany, reply);
    }
    lane.granted.fetch_add(1, Relaxed);
    Ok(())
}

/// Opens the files of a Prefetch, each after the same check as an Open, and starts reading those that aren't
/// cached. Files that can't be granted are left out; an Open returns the reason.
fn prefetch(
    lane: &LaneShared,
    service: &dyn GrantService,
    serial: u32,
    targets: &PrefetchTargets<'_>,
    credential: &LaneCredential,
    reply: &mut Encoder,
) -> Result<(), LaneEnd> {
    // As for an Open, read before the first check.
    let control = *lane.control.lock();
    let may = control.state == ControlState::Live && may_act_as(&lane.bound.process, credential);
    let mut opened = Vec::new();
    for (index, target) in targets.targets().enumerate() {
        if !may {
            break;
        }
        let Some(reservation) = lane.reserve(credential.uid, Purpose::Prefetch)? else { break };
        let Ok(granted) = ask(lane, service, &OpenRequest { target, access: Access::Read, credential })
        else {
            continue;
        };
        if !granted.lasts {
            continue;
        }
        read_ahead(&granted);
        let OpenGrant { file, handle, attributes, held, .. } = granted;
        let given = lane.grants.lock().give(held, credential.uid, Purpose::Prefetch, Instant::now());
        let Ok(grant) = given else { break };
        reservation.commit();
        opened.push((index as u32, grant, file, handle, attributes));
    }
    let files = opened.iter().map(|(index, grant, _, handle, attributes)| PrefetchedFile {
        index: *index,
        grant: *grant,
        handle,
        attributes: *attributes,
    });
    let given = LaneReply::Prefetched {
        serial,
        generation: control.generation,
        verifier: service.verifier(),
        files: files.collect(),
    };
    reply.truncate(0);
    reply.put(&given);
    let fds: Vec<_> = opened.iter().map(|(_, _, file, ..)| file.as_fd()).collect();
    match socket::send(&lane.socket, reply.as_slice(), &fds) {
        Ok(()) => {
            lane.granted.fetch_add(fds.len() as u64, Relaxed);
            Ok(())
        }
        Err(error) => {
            let held: Vec<ServiceState> = {
                let mut grants = lane.grants.lock();
                opened.iter().rev().map(|(_, grant, ..)| lane.take_back(&mut grants, *grant)).collect()
            };
            drop(held);
            if error != Errno::TOOMANYREFS {
                return Err(error.into());
            }
            // The kernel bounds the descriptors that a user has in flight. Prefetched ones can wait.
            let none = LaneReply::Prefetched { serial, generation: 0, verifier: [0; 8], files: Vec::new() };
            reply.truncate(0);
            reply.put(&none);
            Ok(socket::send(&lane.socket, reply.as_slice(), &[])?)
        }
    }
}

/// Makes the kernel start reading the file into the page cache, if its mode uses that. Doesn't wait.
fn read_ahead(granted: &OpenGrant) {
    if granted.attributes.modes.read == io::IoMode::Buffered
        && let Some(length) = NonZeroU64::new(granted.attributes.file.size.min(READ_AHEAD))
    {
        // Where this isn't possible the file is read on demand.
        let _ = rustix::fs::fadvise(&granted.file, 0, Some(length), rustix::fs::Advice::WillNeed);
    }
}
