//! The lane of a session: the live one, the files with grants of it, and the reasons why there is none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use lane::{Lane, RendezvousOptions};
use parking_lot::Mutex;
use rpc::client::Policy;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;

use super::LaneReport;
use super::backoff::ProbeBackoff;
use crate::ahead::Ahead;
use crate::attribute_sink::AttributeSink;
use crate::file::{Inner as FileInner, Medium};
use crate::options::{LaneMode, Options};
use crate::types::Attributes;

/// A lane with its number in the session.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) lane: Lane,
    pub(super) number: u64,
    pub(super) watch: AbortHandle,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[derive(Debug, Default)]
struct OpenFiles {
    next: u64,
    open: HashMap<u64, Weak<FileInner>>,
}

/// The session's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneManager {
    /// A [`LaneMode`].
    pub(super) mode: AtomicU8,
    pub(super) attribute_sink: Option<Arc<dyn AttributeSink>>,
    pub(super) throttle: u32,
    /// How long an Open may take, and whether the session waits without a limit for a lane that it requires.
    pub(super) policy: Policy,
    pub(super) rendezvous: RendezvousOptions,
    /// Whether the session has a user: with AUTH_NONE there is no lane.
    pub(super) has_owner: bool,
    pub(super) runtime: Runtime,
    pub(super) up: ArcSwapOption<Up>,
    pub(super) next: AtomicU64,
    pub(super) backoff: Mutex<ProbeBackoff>,
    pub(super) reasons: Mutex<Vec<String>>,
    /// One probe at a time.
    pub(super) probing: tokio::sync::Mutex<()>,
    /// A probe is running in the background.
    pub(super) background: AtomicBool,
    /// There has been a lane.
    pub(super) was_up: AtomicBool,
    /// When the log last reported that there is no room for another file.
    pub(super) last_limit_warning: Mutex<Option<Instant>>,
    /// Files with grants, which are notified when the lane ends.
    files: Mutex<OpenFiles>,
    /// The filesystem in memory (its id) that last said it can't be asked not to wait; 0: none did.
    in_memory: AtomicU64,
    /// Likewise one that isn't in memory.
    mute: AtomicU64,
    /// What filesystems turned out not to do of the I/O modes.
    pub(crate) fallbacks: io::IoFallbacks,
    /// Files that were prefetched.
    pub(crate) ahead: Ahead,
}

impl LaneManager {
    /// A session without a lane. Must run in a tokio runtime.
    pub(crate) fn new(options: &Options, has_owner: bool) -> Self {
        Self {
            mode: AtomicU8::new(options.lane as u8),
            attribute_sink: options.attribute_sink.clone(),
            throttle: options.probe_throttle,
            policy: options.policy(),
            rendezvous: RendezvousOptions {
                trusted_uids: options.trusted_uids.clone(),
                search_namespaces: options.search_namespaces,
                ..RendezvousOptions::new(options.run_dir.clone())
            },
            has_owner,
            runtime: Runtime::current(),
            up: ArcSwapOption::empty(),
            next: AtomicU64::new(1),
            backoff: Mutex::new(ProbeBackoff::default()),
            reasons: Mutex::new(Vec::new()),
            probing: tokio::sync::Mutex::new(()),
            background: AtomicBool::new(false),
            was_up: AtomicBool::new(false),
            last_limit_warning: Mutex::new(None),
            files: Mutex::new(OpenFiles::default()),
            in_memory: AtomicU64::new(0),
            mute: AtomicU64::new(0),
            fallbacks: io::IoFallbacks::default(),
            ahead: Ahead::new(getrlimit(Resource::Nofile).current),
        }
    }

    /// Files of this filesystem can't be asked not to wait (RWF_NOWAIT): the next one opened needs no
    /// trial.
    pub(crate) fn cannot_be_asked(&self, fsid: u64, medium: Medium) {
        let last = if medium == Medium::Memory { &self.in_memory } else { &self.mute };
        last.store(fsid, Relaxed);
    }

    /// The properties of the filesystem of a file with these attributes.
    pub(crate) fn medium_of(&self, attributes: Option<&Attributes>) -> Medium {
        let fsid = attributes.map_or(0, |attributes| attributes.fsid);
        match fsid {
            0 => Medium::Asked,
            _ if self.in_memory.load(Relaxed) == fsid => Medium::Memory,
            _ if self.mute.load(Relaxed) == fsid => Medium::Mute,
            _ => Medium::Asked,
        }
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

    /// Whether there has ever been a lane.
    pub(crate) fn has_been_up(&self) -> bool {
        self.was_up.load(Relaxed)
    }

    /// Logs the state of the lane.
    pub(super) fn announce(&self) {
        if let Some(sink) = &self.attribute_sink {
            sink.lane_changed(&self.report());
        }
    }

    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The live lane, if there is one.
    pub(super) fn live(&self) -> Option<Arc<Up>> {
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

    /// Whether lane `number` is live.
    pub(crate) fn is_live(&self, number: u64) -> bool {
        self.live().is_some_and(|up| up.number == number)
    }

    /// Notes that lane `number` has ended.
    pub(crate) fn lost(&self, number: u64) {
        let Some(up) = self.up.load_full().filter(|up| up.number == number) else { return };
        let before = self.up.compare_and_swap(&up, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &up)) {
            tracing::debug!(number, "the lane is gone");
            *self.reasons.lock() = vec![
                "the lane that there was is gone: the server stopped or took it back, or its NFS \
                      connection was closed"
                    .to_owned(),
            ];
            self.backoff.lock().lost(Instant::now());
            self.announce();
        }
    }

    /// Gives up lane `number`, which has ended, and every grant of it: also those of idle files.
    pub(super) fn give_up(&self, number: u64) {
        self.recall(number);
        self.lost(number);
    }

    /// Adds a file with a grant to the list (or leaves it there, if it has a number). Returns its number.
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

    /// Removes a file from the list.
    pub(crate) fn strike(&self, number: u64) {
        self.files.lock().open.remove(&number);
    }

    /// The timeout of an Open.
    pub(crate) fn open_timeout(&self) -> Duration {
        self.policy.timeout()
    }

    /// Makes every file give up its grant of lane `number`.
    pub(super) fn recall(&self, number: u64) {
        self.ahead.forget();
        let files: Vec<Weak<FileInner>> = self.files.lock().open.values().cloned().collect();
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.recall(number));
    }

    /// Whether a probe in the background is due now.
    pub(super) fn is_due(&self, reconnects: u64) -> bool {
        self.has_owner && self.backoff.lock().is_due(Instant::now(), reconnects, self.throttle)
    }
}
