//! The session's lane: looking for one, losing it, looking again.
//!
//! A probe is: register a nonce at every rendezvous of this host, send it to the server over the NFS connection, and see
//! whether one of the rendezvous answers. It is made when the session begins; after a lane was lost, a reconnect, or (if
//! set) every `probe_throttle` reads and writes on the wire, at the next I/O and in the background; and never more often
//! than the pace allows. A session that must have a lane waits for the probe, and for the next one while the server comes
//! back or drains.
//!
//! A lane whose server doesn't answer an Open for as long as a call may take (`timeo × (retrans + 1)`) is given up: the wire
//! decides what becomes of the session, by its own rules.

mod probe;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use lane::{Lane, OpenError, OpenRequest, RendezvousOptions, Target};
use parking_lot::Mutex;
use rpc::client::Policy;
use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;

use crate::ahead::{Ahead, Wanted};
use crate::counters::bump;
use crate::error::{Error, Result};
use crate::file::{Inner as FileInner, Opening};
use crate::observer::{Observer, Seen};
use crate::options::{LaneMode, Options};
use crate::session::{Inner as SessionInner, Session};
use crate::types::{Attributes, Handle};

/// The first pause between probes.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between probes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether the session is local, and if not, why not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneReport {
    /// Whether there is a lane now.
    pub local: bool,
    /// The server's instance, 32 hexadecimal digits, while there is a lane.
    pub instance: Option<String>,
    /// Which rendezvous it came up through, in words.
    pub through: Option<String>,
    /// Why there is none: one sentence a candidate or cause, each with something an admin can act on.
    pub reasons: Vec<String>,
}

/// What a lane said to a request for a file.
pub(crate) enum Answer {
    /// A grant.
    Granted(Box<Opening>),
    /// No; the wire may know better.
    Refused(lane::Status),
    /// There is no lane, or it is gone.
    None,
}

/// When to probe next: a machine with the clock passed in.
#[derive(Debug, Default)]
struct Pace {
    failures: u32,
    not_before: Option<Instant>,
    /// How often the connection had been made anew at the last probe.
    reconnects: u64,
    /// Reads and writes on the wire since the last probe.
    wire_ios: u64,
    /// How often files were let ask the same lane again, and when last.
    round: u32,
    round_began: Option<Instant>,
}

impl Pace {
    /// One read or write goes over the wire: is a probe due? `throttle`: a power of two, or 0.
    fn is_due(&mut self, now: Instant, reconnects: u64, throttle: u32) -> bool {
        self.wire_ios += 1;
        if reconnects != self.reconnects {
            return true;
        }
        if throttle != 0 && self.wire_ios >= u64::from(throttle) {
            return true;
        }
        // A session that was never local is probed again only for the reasons above.
        self.not_before.is_some_and(|at| now >= at)
    }

    /// One read or write goes over the wire although there is a lane, which has refused the file. It may ask again in
    /// another round: the export's options may have changed. Returns the round.
    fn round(&mut self, now: Instant, throttle: u32) -> u32 {
        self.wire_ios += 1;
        let began = *self.round_began.get_or_insert(now);
        let throttled = throttle != 0 && self.wire_ios >= u64::from(throttle);
        if throttled || now.saturating_duration_since(began) >= LONGEST_PAUSE {
            self.wire_ios = 0;
            self.round = self.round.wrapping_add(1);
            self.round_began = Some(now);
        }
        self.round
    }

    /// A probe begins.
    const fn begin(&mut self, reconnects: u64) {
        self.reconnects = reconnects;
        self.wire_ios = 0;
        self.not_before = None;
    }

    /// It found no lane. `again`: there was one before, so it may come back. Returns the pause until the next one.
    fn failed(&mut self, now: Instant, again: bool) -> Duration {
        let pause = pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = again.then(|| now + pause);
        pause
    }

    /// It found one.
    const fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// The lane is gone.
    fn lost(&mut self, now: Instant) {
        self.not_before = Some(now);
    }
}

/// A lane with its number in the session.
#[derive(Debug)]
struct Up {
    lane: Lane,
    number: u64,
    watch: AbortHandle,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[derive(Debug, Default)]
struct Files {
    next: u64,
    open: HashMap<u64, Weak<FileInner>>,
}

/// The session's end of the lane.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// A [`LaneMode`].
    mode: AtomicU8,
    observer: Option<Arc<dyn Observer>>,
    throttle: u32,
    /// How long an Open may take, and whether the session waits for ever for a lane that it must have.
    policy: Policy,
    rendezvous: RendezvousOptions,
    /// Whether the session's owner is somebody: with AUTH_NONE there is no lane.
    has_owner: bool,
    runtime: Runtime,
    up: ArcSwapOption<Up>,
    next: AtomicU64,
    pace: Mutex<Pace>,
    reasons: Mutex<Vec<String>>,
    /// One probe at a time.
    probing: tokio::sync::Mutex<()>,
    /// A probe in the background is under way.
    background: AtomicBool,
    /// There has been a lane.
    was_up: AtomicBool,
    /// Files with grants, to be told when the lane goes.
    files: Mutex<Files>,
    /// The filesystem (its id) that last said it can't be asked not to wait; 0: none did.
    always_waits: AtomicU64,
    /// What filesystems turned out not to do of the I/O modes.
    pub(crate) fallbacks: io::Fallbacks,
    /// Files that were asked for before they are opened.
    pub(crate) ahead: Ahead,
}

impl Keeper {
    /// No lane yet. In a tokio runtime.
    pub(crate) fn new(options: &Options, has_owner: bool) -> Self {
        Self {
            mode: AtomicU8::new(options.lane as u8),
            observer: options.observer.clone(),
            throttle: options.probe_throttle,
            policy: Policy { timeo: options.timeo, retrans: options.retrans, hard: options.hard },
            rendezvous: RendezvousOptions {
                trusted_uids: options.trusted_uids.clone(),
                search_namespaces: options.search_namespaces,
                ..RendezvousOptions::new(options.run_dir.clone())
            },
            has_owner,
            runtime: Runtime::current(),
            up: ArcSwapOption::empty(),
            next: AtomicU64::new(1),
            pace: Mutex::new(Pace::default()),
            reasons: Mutex::new(Vec::new()),
            probing: tokio::sync::Mutex::new(()),
            background: AtomicBool::new(false),
            was_up: AtomicBool::new(false),
            files: Mutex::new(Files::default()),
            always_waits: AtomicU64::new(0),
            fallbacks: io::Fallbacks::default(),
            ahead: Ahead::default(),
        }
    }

    /// Files of this filesystem can't be asked not to wait (RWF_NOWAIT): the next one opened needs no trial.
    pub(crate) fn always_waits_on(&self, fsid: u64) {
        self.always_waits.store(fsid, Relaxed);
    }

    /// Whether a file with these attributes is on such a filesystem.
    pub(crate) fn waits_on(&self, attributes: Option<&Attributes>) -> bool {
        let fsid = self.always_waits.load(Relaxed);
        fsid != 0 && attributes.is_some_and(|attributes| attributes.fsid == fsid)
    }

    pub(crate) fn mode(&self) -> LaneMode {
        const OFF: u8 = LaneMode::Off as u8;
        const REQUIRED: u8 = LaneMode::Required as u8;
        match self.mode.load(Relaxed) {
            OFF => LaneMode::Off,
            REQUIRED => LaneMode::Required,
            _ => LaneMode::Auto,
        }
    }

    /// Says how things are now.
    fn announce(&self) {
        if let Some(observer) = &self.observer {
            observer.road(&self.report());
        }
    }

    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The lane that works, if there is one.
    fn live(&self) -> Option<Arc<Up>> {
        self.up.load_full().filter(|up| up.lane.state() == lane::LaneState::Live)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.live().is_some()
    }

    pub(crate) fn report(&self) -> LaneReport {
        if self.mode() == LaneMode::Off {
            let reasons = vec!["the lane is switched off for this session (lane=off)".to_owned()];
            return LaneReport { reasons, ..LaneReport::default() };
        }
        match self.live() {
            Some(up) => LaneReport {
                local: true,
                instance: Some(lane::nonce::hex(&up.lane.instance())),
                through: Some(up.lane.through().to_owned()),
                reasons: Vec::new(),
            },
            None => LaneReport { reasons: self.reasons.lock().clone(), ..LaneReport::default() },
        }
    }

    /// Lane `number` works.
    pub(crate) fn is_live(&self, number: u64) -> bool {
        self.live().is_some_and(|up| up.number == number)
    }

    /// Lane `number` doesn't work any more.
    pub(crate) fn lost(&self, number: u64) {
        let Some(up) = self.up.load_full().filter(|up| up.number == number) else { return };
        let before = self.up.compare_and_swap(&up, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &up)) {
            tracing::debug!(number, "the lane is gone");
            *self.reasons.lock() =
                vec!["the lane that there was is gone: the server stopped or took it back".to_owned()];
            self.pace.lock().lost(Instant::now());
            self.announce();
        }
    }

    /// Gives up lane `number`, which doesn't work any more, and every grant of it: also those of files that are idle.
    fn give_up(&self, number: u64) {
        self.recall(number);
        self.lost(number);
    }

    /// Takes a file with a grant into the list (or leaves it there, if it has a number); returns its number.
    pub(crate) fn enlist(&self, file: Weak<FileInner>, number: u64) -> u64 {
        if number != 0 {
            return number;
        }
        let mut files = self.files.lock();
        files.next += 1;
        let number = files.next;
        files.open.insert(number, file);
        number
    }

    /// Takes a file out of the list.
    pub(crate) fn strike(&self, number: u64) {
        self.files.lock().open.remove(&number);
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        self.policy.patience()
    }

    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.as_ref()
    }

    /// Tells every file to give up its grant of lane `number`.
    fn recall(&self, number: u64) {
        self.ahead.forget();
        let files: Vec<Weak<FileInner>> = self.files.lock().open.values().cloned().collect();
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.recall(number));
    }

    /// Whether a probe in the background is due now.
    fn is_due(&self, reconnects: u64) -> bool {
        self.has_owner && self.pace.lock().is_due(Instant::now(), reconnects, self.throttle)
    }
}

/// Waits until a lane goes, and then takes it out of use, also for files that are idle.
async fn watch(session: Weak<SessionInner>, lane: Lane, number: u64) {
    lane.gone().await;
    drop(lane);
    if let Some(session) = session.upgrade() {
        session.lane.give_up(number);
    }
}

impl Session {
    /// Whether to use the lane from now on: the mode that the session was made with is only the first. When it is switched
    /// off, files with a grant go on over the wire with their next read or write; when it is switched on, a lane is
    /// looked for in the background ([`Session::probe`] waits for it).
    pub fn set_lane_mode(&self, mode: LaneMode) {
        let keeper = &self.inner.lane;
        let before = keeper.mode.swap(mode as u8, SeqCst);
        if before == mode as u8 {
            return;
        }
        match keeper.up.load_full() {
            Some(up) if mode == LaneMode::Off => {
                up.lane.end();
                keeper.give_up(up.number);
            }
            Some(_) => keeper.announce(),
            None => {
                keeper.announce();
                if mode != LaneMode::Off {
                    self.probe_in_background();
                }
            }
        }
    }

    fn probe_in_background(&self) {
        if !self.inner.lane.background.swap(true, SeqCst) {
            let session = self.clone();
            self.inner.lane.runtime.spawn(async move {
                session.probe_once(true).await;
                session.inner.lane.background.store(false, SeqCst);
            });
        }
    }

    /// The occasion for a file without a grant to ask for one before its next I/O: a number that is another one for
    /// every lane and every round. Without a lane, a probe is begun if it is due; where one is required, it is waited
    /// for, and finding none is an error.
    pub(crate) async fn lane_for_io(&self) -> Result<Option<u64>> {
        let keeper = &self.inner.lane;
        let occasion = |up: &Up| {
            let round = keeper.pace.lock().round(Instant::now(), keeper.throttle);
            up.number << 32 | u64::from(round)
        };
        if let Some(up) = keeper.live() {
            return Ok(Some(occasion(&up)));
        }
        if keeper.mode() == LaneMode::Required {
            // In a box: it is rare, and large.
            return Ok(Box::pin(self.lane_that_must_be()).await?.as_deref().map(occasion));
        }
        if keeper.is_due(self.inner.rpc.stats().reconnects) {
            self.probe_in_background();
        }
        Ok(None)
    }

    /// A file to read, if it was asked for ahead.
    pub(crate) async fn look_ahead(&self, wanted: Wanted<'_>) -> Option<Opening> {
        if self.inner.lane.mode() == LaneMode::Off {
            return None;
        }
        let up = self.inner.lane.live()?;
        self.open_ahead(wanted, &up.lane, up.number).await
    }

    /// Asks the lane for a file. Where a lane is required, anything but a grant or a refusal that the wire would repeat
    /// is an error.
    pub(crate) async fn ask_lane(
        &self,
        target: Target<'_>,
        name: &[u8],
        read: bool,
        write: bool,
    ) -> Result<Answer> {
        let keeper = &self.inner.lane;
        let required = |reason: String| match keeper.mode() {
            LaneMode::Required => Err(Error::NoLane {
                object: String::from_utf8_lossy(name).into_owned(),
                reasons: vec![reason],
            }),
            _ => Ok(Answer::None),
        };
        let (Some(credential), true) = (&self.user.lane, keeper.mode() != LaneMode::Off) else {
            return Ok(Answer::None);
        };
        let access = match (read, write) {
            (true, false) => lane::Access::Read,
            (false, true) => lane::Access::Write,
            (true, true) => lane::Access::ReadWrite,
            (false, false) => return Ok(Answer::None),
        };
        let live = &self.inner.live;
        let mut rounds = 0;
        loop {
            self.lane_for_io()
                .await
                .map_err(|error| error.about(|| String::from_utf8_lossy(name).into_owned()))?;
            // With a required lane this means that it has just gone again.
            let up = keeper.live();
            if up.is_none() && keeper.mode() != LaneMode::Required {
                return Ok(Answer::None);
            }
            let mut why = OpenError::Gone.to_string();
            if let Some(up) = up {
                bump(&live.lane.round_trips);
                let asked = Instant::now();
                let patience = keeper.policy.patience();
                let request = OpenRequest { target, access, credential };
                match tokio::time::timeout(patience, up.lane.open(request)).await {
                    Ok(Ok(opened)) => {
                        bump(&live.lane.opens);
                        let handle = Handle::new(&opened.handle).ok_or_else(|| Error::Protocol {
                            object: String::from_utf8_lossy(name).into_owned(),
                            what: "its file handle is longer than a handle can be",
                        })?;
                        let attributes = Some(opened.about.attributes);
                        if let Some(observer) = &keeper.observer {
                            observer.seen(&handle, &Seen { before: None, attributes, asked });
                        }
                        return Ok(Answer::Granted(Box::new(Opening {
                            handle,
                            attributes,
                            granted: Some((opened.grant, up.number, opened.verifier)),
                            refused: None,
                        })));
                    }
                    Ok(Err(OpenError::Refused(status))) => match status {
                        lane::Status::Denied
                        | lane::Status::NoLane
                        | lane::Status::TooMany
                        | lane::Status::TryWire => {
                            return required(status.to_string()).map(|_| Answer::Refused(status));
                        }
                        lane::Status::Draining => {
                            keeper.give_up(up.number);
                            why = status.to_string();
                        }
                        status => return Ok(Answer::Refused(status)),
                    },
                    Ok(Err(OpenError::Gone)) => keeper.give_up(up.number),
                    Ok(Err(error)) => return required(error.to_string()),
                    Err(_) => {
                        tracing::warn!(?patience, "the lane does not answer: it is given up");
                        up.lane.end();
                        keeper.give_up(up.number);
                        why = format!("the lane did not answer within {patience:?}");
                    }
                }
            }
            // The wire knows. Where there must be a lane, the next one: as often as a call would be made again.
            if keeper.mode() != LaneMode::Required || !keeper.policy.hard && rounds >= keeper.policy.retrans {
                return required(why);
            }
            tokio::time::sleep(pause(rounds)).await;
            rounds = rounds.saturating_add(1);
        }
    }
}

/// The pause after this many that brought no lane.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_never_local_probes_only_for_a_reason() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let mut pace = Pace::default();
        pace.begin(0);
        pace.failed(now, false);
        assert!(!pace.is_due(later, 0, 0));
        assert!(pace.is_due(later, 1, 0), "after a reconnect");
        pace.begin(1);
        pace.failed(now, false);
        assert!((0..7).all(|_| !pace.is_due(later, 1, 8)));
        assert!(pace.is_due(later, 1, 8), "every 8 reads and writes");
    }

    #[test]
    fn a_file_that_was_refused_may_ask_again_now_and_then() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert!((0..1000).all(|_| pace.round(now, 0) == 0));
        assert_eq!(pace.round(now + LONGEST_PAUSE, 0), 1);
        assert_eq!(pace.round(now + LONGEST_PAUSE, 0), 1);
        let mut throttled = Pace::default();
        let rounds: Vec<u32> = (0..9).map(|_| throttled.round(now, 4)).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_lost_lane_is_looked_for_at_once_and_then_ever_more_rarely() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        pace.begin(0);
        pace.succeeded();
        assert!(!pace.is_due(now, 0, 0));
        pace.lost(now);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(pace.is_due(now, 0, 0));
            pace.begin(0);
            pace.failed(now, true);
            let at = pace.not_before.unwrap();
            assert!(!pace.is_due(at - Duration::from_millis(1), 0, 0));
            pauses.push(at - now);
            now = at;
        }
        assert_eq!(pauses[0], FIRST_PAUSE);
        assert_eq!(pauses[1], FIRST_PAUSE * 2);
        assert_eq!(pauses[19], LONGEST_PAUSE);
    }
}
