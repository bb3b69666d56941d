//! One lane: the thread that serves it, and what others may do to it meanwhile.
//!
//! A lane's life:
//! 1. [`LaneShared::new`] makes it of a waiting connection whose nonce has come;
//! 2. [`LaneShared::say_local`] puts Local into the client's socket;
//! 3. [`serve`] answers Opens on a thread of its own, until the client hangs up, breaks the protocol, or
//!    somebody calls [`LaneShared::end`];
//! 4. whatever grants are left are released when `serve` returns, also if it panics.
//!
//! Nothing here waits for the client but the receive at the top of the loop: a reply that finds the client's
//! socket full ends the lane.

use super::budget::{Budget, Place, share_of};
use super::{Bound, Granted, Granter, LaneInfo, Limits};
use crate::grants::{Grants, Wanted};
use crate::interlock::{Control, SLOTS, ServerSide, State};
use crate::memory::Memory;
use crate::message::{self, Given, MAX_MESSAGE, Reply, Request};
use crate::nonce::{Instance, Nonce};
use crate::peer::may_act_as;
use crate::request::{Access, Credential, MAX_HANDLE, OpenRequest, Soon, Status, Target};
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

/// How many bytes of a file that may be wanted soon are read ahead.
const READ_AHEAD: u64 = 128 << 10;

/// What the server holds while a grant is open.
type Held = Option<Box<dyn Any + Send>>;

/// A lane, as its own thread and the server's other threads see it.
pub(super) struct LaneShared {
    pub(super) bound: Bound,
    /// Whom its grants, and the lane itself, are charged to.
    pub(super) share: Peer,
    budget: Arc<Budget>,
    through: String,
    since: SystemTime,
    socket: OwnedFd,
    interlock: ServerSide<Memory>,
    /// What stands in the shared memory, which the client may have scribbled over.
    control: Mutex<Control>,
    grants: Mutex<Grants<Held>>,
    granted: AtomicU64,
    refused: AtomicU64,
    /// A request is being served.
    busy: AtomicBool,
    /// The client has said that it syncs for itself.
    asynchronous: AtomicBool,
    /// Why this server ended it, if it was this server.
    why: OnceLock<&'static str>,
    limits: Limits,
}

/// Why a lane ended, for the log.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the client hung up")]
    HangUp,
    #[error("the client sent {0}")]
    Violation(&'static str),
    #[error("the client sent no message of the protocol: {0}")]
    Garbage(#[from] xdr::Error),
    #[error("the client makes no sense: {0}")]
    Nonsense(#[from] crate::grants::Nonsense),
    #[error("the socket failed: {0}")]
    Socket(#[from] rustix::io::Errno),
}

impl LaneShared {
    /// A lane over this connection.
    pub(super) fn new(
        bound: Bound,
        through: String,
        socket: OwnedFd,
        limits: Limits,
        budget: Arc<Budget>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            share: share_of(&bound.process),
            bound,
            budget,
            through,
            since: SystemTime::now(),
            socket,
            interlock: ServerSide::new(
                Memory::create()?,
                if is_offered(BarrierScope::Host) { SLOTS } else { 0 },
            ),
            control: Mutex::new(Control::FIRST),
            grants: Mutex::new(Grants::new(limits.lane_grants, limits.outstanding)),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            asynchronous: AtomicBool::new(false),
            why: OnceLock::new(),
            limits,
        })
    }

    /// Tells the client that the nonce has come. Whether it could be told.
    pub(super) fn say_local(&self, version: u32, nonce: Nonce, instance: Instance) -> bool {
        let local = Reply::Local {
            version,
            nonce,
            instance,
            grants: self.limits.lane_grants,
            outstanding: self.limits.outstanding,
            slots: self.interlock.slots() as u32,
        };
        socket::send(&self.socket, &message::encode(&local), &[self.interlock.words().as_fd()]).is_ok()
    }

    /// For the status.
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

    /// The I/O that the client says it has under way; exact after a barrier.
    pub(super) fn in_flight(&self) -> u64 {
        self.interlock.in_flight()
    }

    /// Open grants; `None` while a request is being served.
    pub(super) fn idle_grants(&self) -> Option<usize> {
        (!self.busy.load(Relaxed)).then(|| self.grants.lock().open())
    }

    /// Ends all grants given so far; the lane goes on.
    pub(super) fn recall(&self) {
        let generation = {
            let mut control = self.control.lock();
            control.generation += 1;
            self.interlock.publish(*control);
            control.generation
        };
        self.tell(&Reply::Recall { generation });
    }

    /// Refuses new grants and new I/O.
    pub(super) fn begin_drain(&self) {
        self.publish(State::Draining);
        self.tell(&Reply::Drain);
    }

    /// Ends the lane, `why` in words for the status: its thread finds the socket shut.
    pub(super) fn end(&self, why: &'static str) {
        let _ = self.why.set(why); // the first reason is the reason
        self.publish(State::Gone);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Ends the lane if a grant has been waiting for its receipt for too long.
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

    /// Looks how many grants the client has acknowledged by now.
    fn note_receipts(&self, grants: &mut Grants<Held>) -> Result<(), crate::grants::Nonsense> {
        let news = grants.received(self.interlock.received())?;
        self.budget.delivered(self.share, news);
        Ok(())
    }

    /// Room for one more file for this user, in the lane and in what its owner may have in all lanes.
    fn place(&self, user: u32, wanted: Wanted) -> Result<Option<Place<'_>>, End> {
        let mut grants = self.grants.lock();
        self.note_receipts(&mut grants)?;
        let room = grants.has_room(user, wanted);
        drop(grants);
        Ok(if room { self.budget.place(self.share) } else { None })
    }

    /// Takes the last grant back, which couldn't be sent.
    fn take_back(&self, grants: &mut Grants<Held>, grant: u64) -> Held {
        let undelivered = grants.undelivered();
        let held = grants.take_back(grant);
        // A client that lies may have acknowledged it already.
        self.budget.delivered(self.share, undelivered - grants.undelivered());
        self.budget.released(self.share, usize::from(held.is_some()));
        held.flatten()
    }

    /// Releases what is left.
    fn release_all(&self) {
        let mut grants = self.grants.lock();
        self.budget.delivered(self.share, grants.undelivered());
        self.budget.released(self.share, grants.open());
        let left: Vec<Held> = grants.end().collect();
        drop(grants);
        drop(left);
    }

    fn publish(&self, state: State) {
        let mut control = self.control.lock();
        // Draining never comes after gone.
        if control.state as u32 <= state as u32 {
            control.state = state;
            self.interlock.publish(*control);
        }
    }

    /// Says something that the client didn't ask for; ends the lane of a client that doesn't listen.
    fn tell(&self, reply: &Reply<'_>) {
        if socket::send(&self.socket, &message::encode(reply), &[]).is_err() {
            self.end("the client didn't take what it was told");
        }
    }

    fn release(&self, releases: &[u64]) -> Result<(), End> {
        // What the server held is dropped after the lock.
        let mut held = Vec::with_capacity(releases.len());
        let mut grants = self.grants.lock();
        let all = releases.iter().try_for_each(|id| grants.release(*id).map(|its| held.push(its)));
        drop(grants);
        self.budget.released(self.share, held.len());
        Ok(all?)
    }
}

/// A lane that ends otherwise than by its client or its server has a bug behind it.
const PANICKED: &str = "the server failed";

/// Serves a lane to its end; on the lane's own thread. `refresh` looks at the receipts of all lanes.
pub(super) fn serve(lane: &LaneShared, granter: &dyn Granter, refresh: &dyn Fn()) {
    /// Also if the granter panics where nobody catches it.
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
        if let Err(end) = serve_one(lane, granter, refresh, &mut buffer, &mut reply) {
            debug!(lane = lane.bound.lane, %end, "lane ended");
            let why = lane.why.get().map_or_else(|| end.to_string(), |why| (*why).to_owned());
            granter.ended(&lane.bound, &why);
            return;
        }
    }
}

fn serve_one(
    lane: &LaneShared,
    granter: &dyn Granter,
    refresh: &dyn Fn(),
    buffer: &mut socket::Buffer,
    reply: &mut Encoder,
) -> Result<(), End> {
    lane.busy.store(false, Relaxed);
    let length = match socket::receive_bytes(&lane.socket, buffer, true)? {
        Received::Datagram { length, .. } => length,
        Received::HangUp => return Err(End::HangUp),
        Received::Violation(what) => return Err(End::Violation(what)),
    };
    lane.busy.store(true, Relaxed);
    match message::decode(&buffer[..length])? {
        Request::Register { .. } => Err(End::Violation("a second Register")),
        Request::Release(releases) => lane.release(&releases),
        Request::Open { serial, releases, target, access, credential } => {
            lane.release(&releases)?;
            match open(lane, granter, refresh, &target, access, &credential)? {
                Ok(decided) => send_grant(lane, granter, serial, credential.uid, decided, reply),
                Err(status) => refuse(lane, serial, status, reply),
            }
        }
        Request::Ahead { serial, releases, soon, credential } => {
            lane.release(&releases)?;
            ahead(lane, granter, serial, &soon, &credential, reply)
        }
        Request::Async => {
            // Once: it is told to who looks with every call of the NFS connection.
            if !lane.asynchronous.swap(true, Relaxed) {
                granter.async_from_now(&lane.bound);
            }
            Ok(())
        }
    }
}

/// Answers an Open without a file.
fn refuse(lane: &LaneShared, serial: u32, status: Status, reply: &mut Encoder) -> Result<(), End> {
    lane.refused.fetch_add(1, Relaxed);
    reply.truncate(0);
    reply.put(&Reply::NotOpened { serial, status });
    Ok(socket::send(&lane.socket, reply.as_slice(), &[])?)
}

/// A file that is about to be granted.
struct Decided<'a> {
    /// Under which the decision was made.
    generation: u64,
    granted: Granted,
    place: Place<'a>,
}

/// Decides about an Open.
fn open<'a>(
    lane: &'a LaneShared,
    granter: &dyn Granter,
    refresh: &dyn Fn(),
    target: &Target<'_>,
    access: Access,
    credential: &Credential,
) -> Result<Result<Decided<'a>, Status>, End> {
    // Before the check: a recall that comes while we look ends what we are about to give.
    let control = *lane.control.lock();
    if control.state != State::Live {
        return Ok(Err(Status::Draining));
    }
    // Before the room: nobody uses up what others may have.
    if !may_act_as(&lane.bound.process, credential) {
        return Ok(Err(Status::Denied));
    }
    let mut place = lane.place(credential.uid, Wanted::Now)?;
    if place.is_none() {
        // Grants whose receipts nobody has looked at yet may be in the way.
        refresh();
        place = lane.place(credential.uid, Wanted::Now)?;
    }
    // Nothing has been looked at, let alone made.
    let Some(place) = place else { return Ok(Err(Status::TooMany)) };
    let granted = ask(lane, granter, &OpenRequest { target: *target, access, credential });
    Ok(granted.map(|granted| Decided { generation: control.generation, granted, place }))
}

/// Asks the granter; a bug behind one file must not take the lane, let alone the others'.
fn ask(lane: &LaneShared, granter: &dyn Granter, request: &OpenRequest<'_>) -> Result<Granted, Status> {
    catch_unwind(AssertUnwindSafe(|| granter.open(&lane.bound, request)))
        .unwrap_or(Err(Status::Io))
        .and_then(|granted| if granted.handle.len() <= MAX_HANDLE { Ok(granted) } else { Err(Status::Io) })
}

/// Sends a grant, or takes it back.
fn send_grant(
    lane: &LaneShared,
    granter: &dyn Granter,
    serial: u32,
    user: u32,
    decided: Decided<'_>,
    reply: &mut Encoder,
) -> Result<(), End> {
    let Decided { generation, granted, place } = decided;
    let Granted { file, handle, about, directory, held, .. } = granted;
    // There was room before the file was opened, and this thread alone gives.
    let Ok(grant) = lane.grants.lock().give(held, user, Wanted::Now, Instant::now()) else { return Ok(()) };
    place.fill();
    reply.truncate(0);
    reply.put(&Reply::Opened {
        serial,
        grant,
        generation,
        verifier: granter.verifier(),
        handle: &handle,
        about,
        directory,
    });
    if let Err(error) = socket::send(&lane.socket, reply.as_slice(), &[file.as_fd()]) {
        let held = lane.take_back(&mut lane.grants.lock(), grant);
        drop(held);
        if error != Errno::TOOMANYREFS {
            return Err(error.into());
        }
        // The kernel bounds the descriptors that a user has under way, and it counts those of other programs
        // of ours.
        return refuse(lane, serial, Status::TooMany, reply);
    }
    lane.granted.fetch_add(1, Relaxed);
    Ok(())
}

/// Opens what may be wanted soon, each file by the one check, and begins to read those that aren't cached.
/// What can't be given is left out: an Open will say why.
fn ahead(
    lane: &LaneShared,
    granter: &dyn Granter,
    serial: u32,
    soon: &Soon<'_>,
    credential: &Credential,
    reply: &mut Encoder,
) -> Result<(), End> {
    // As for an Open: before the first check.
    let control = *lane.control.lock();
    let may = control.state == State::Live && may_act_as(&lane.bound.process, credential);
    let mut opened = Vec::new();
    for (index, target) in soon.targets().enumerate() {
        if !may {
            break;
        }
        let Some(place) = lane.place(credential.uid, Wanted::Soon)? else { break };
        let Ok(granted) = ask(lane, granter, &OpenRequest { target, access: Access::Read, credential })
        else {
            continue;
        };
        if !granted.lasts {
            continue;
        }
        read_ahead(&granted);
        let Granted { file, handle, about, held, .. } = granted;
        let given = lane.grants.lock().give(held, credential.uid, Wanted::Soon, Instant::now());
        let Ok(grant) = given else { break };
        place.fill();
        opened.push((index as u32, grant, file, handle, about));
    }
    let files = opened.iter().map(|(index, grant, _, handle, about)| Given {
        index: *index,
        grant: *grant,
        handle,
        about: *about,
    });
    let given = Reply::Given {
        serial,
        generation: control.generation,
        verifier: granter.verifier(),
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
            let held: Vec<Held> = {
                let mut grants = lane.grants.lock();
                opened.iter().rev().map(|(_, grant, ..)| lane.take_back(&mut grants, *grant)).collect()
            };
            drop(held);
            if error != Errno::TOOMANYREFS {
                return Err(error.into());
            }
            // The kernel bounds the descriptors that a user has under way. Those that nobody has asked for
            // yet can wait.
            let none = Reply::Given { serial, generation: 0, verifier: [0; 8], files: Vec::new() };
            reply.truncate(0);
            reply.put(&none);
            Ok(socket::send(&lane.socket, reply.as_slice(), &[])?)
        }
    }
}

/// Has the kernel begin to read the file, if it isn't cached and is to be. Doesn't wait for it.
fn read_ahead(granted: &Granted) {
    if granted.about.modes.read == io::IoMode::Buffered
        && let Some(length) = NonZeroU64::new(granted.about.attributes.size.min(READ_AHEAD))
    {
        // Where that isn't possible the file is read when it is read.
        let _ = rustix::fs::fadvise(&granted.file, 0, Some(length), rustix::fs::Advice::WillNeed);
    }
}
