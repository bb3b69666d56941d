//! The established lane of a session, the files with grants from it, and the reasons why there is none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use lane::{Lane, RendezvousOptions};
use parking_lot::Mutex;
use rpc::client::{Client, Policy};
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::GrantHolder;
use super::background_probe::BackgroundProbe;
use super::backoff::ProbeBackoff;
use super::tree::{GrantedTree, TreeRequests};
use crate::attribute_sink::AttributeSink;
use crate::counters::SessionCounters;
use crate::open_prefetch::OpenPrefetch;
use crate::options::{LaneMode, Options};
use crate::seal_queue::SealQueue;
use crate::types::{Attributes, Handle, LaneReport};
use crate::user::User;

/// Whether a filesystem supports reads that don't wait for the disk (RWF_NOWAIT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NowaitSupport {
    /// It does, as far as is known.
    Assumed,
    /// It doesn't, and reads never wait: it is in memory.
    InMemory,
    /// It doesn't, and a read may wait.
    Unsupported,
}

impl NowaitSupport {
    /// The inverse of `self as u8`.
    pub(crate) const fn from_u8(number: u8) -> Self {
        match number {
            1 => Self::InMemory,
            2 => Self::Unsupported,
            _ => Self::Assumed,
        }
    }
}

/// A lane with its number in the session; it may have ended.
#[derive(Debug)]
pub(super) struct EstablishedLane {
    pub(super) lane: Lane,
    pub(super) number: u64,
    pub(super) watch: AbortHandle,
}

impl EstablishedLane {
    fn is_live(&self) -> bool {
        self.lane.state() == lane::LaneState::Live
    }
}

impl Drop for EstablishedLane {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[derive(Debug, Default)]
struct GrantedFiles {
    next: u64,
    by_number: HashMap<u64, Weak<dyn GrantHolder>>,
}

/// The session's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneManager {
    /// A [`LaneMode`].
    pub(super) mode: AtomicU8,
    pub(super) attribute_sink: Option<Arc<dyn AttributeSink>>,
    pub(super) throttle: u32,
    /// The most operations in the tree that may wait for a disk on the threads that ask for them.
    pub(super) max_blocking: usize,
    /// Determines the timeout of an Open, and for how long a session waits for a lane that it requires.
    pub(super) policy: Policy,
    pub(super) rendezvous: RendezvousOptions,
    /// The connections to the server, for the LOCALIO program.
    pub(super) rpc: Arc<Client>,
    /// The user who establishes the lane. With AUTH_NONE there is no lane.
    pub(super) owner: Arc<User>,
    pub(super) counters: Arc<SessionCounters>,
    pub(super) runtime: Runtime,
    pub(super) established: ArcSwapOption<EstablishedLane>,
    pub(super) next: AtomicU64,
    pub(super) backoff: Mutex<ProbeBackoff>,
    pub(super) reasons: Mutex<Vec<String>>,
    /// Locked during a probe.
    pub(super) probing: tokio::sync::Mutex<()>,
    pub(super) background: BackgroundProbe,
    /// Whether a lane was ever established.
    pub(super) was_established: AtomicBool,
    /// Whether that was done by this session or another on its connections.
    pub(super) had_lane: Arc<AtomicBool>,
    /// Other sessions on the connections may rely on it that a change is durable when it is answered.
    pub(super) is_durable: bool,
    /// The time of the last warning about an [`OpenFileLimit`](crate::OpenFileLimit).
    pub(super) last_limit_warning: Mutex<Option<Instant>>,
    /// The directory tree of the session's root.
    pub(super) tree: ArcSwapOption<GrantedTree>,
    pub(super) tree_requests: Mutex<TreeRequests>,
    /// The directory whose tree is requested. Set once the session knows it.
    pub(super) root: OnceLock<Handle>,
    /// Handles that were made in the tree.
    pub(crate) seals: Arc<SealQueue>,
    /// Notified when there is a lane, when it has ended, and when the mode was changed.
    pub(super) changes: watch::Sender<()>,
    /// Files with grants, which are notified when the lane ends.
    files: Mutex<GrantedFiles>,
    /// The id of the filesystem in memory that last refused RWF_NOWAIT; 0 if none did.
    in_memory: AtomicU64,
    /// Likewise of one that isn't in memory.
    without_nowait: AtomicU64,
    /// The I/O modes that filesystems turned out not to support.
    pub(crate) fallbacks: io::IoFallbacks,
    /// Prefetched files.
    pub(crate) open_prefetch: Arc<OpenPrefetch>,
}

impl LaneManager {
    /// Starts without a lane. Must run in a tokio runtime.
    pub(crate) fn new(
        options: &Options,
        rpc: Arc<Client>,
        owner: Arc<User>,
        had_lane: Arc<AtomicBool>,
        is_durable: bool,
    ) -> Arc<Self> {
        let runtime = Runtime::current();
        Arc::new(Self {
            mode: AtomicU8::new(options.lane as u8),
            attribute_sink: options.attribute_sink.clone(),
            throttle: options.probe_throttle,
            max_blocking: options.max_blocking,
            policy: options.policy(),
            rendezvous: RendezvousOptions {
                trusted_uids: options.trusted_uids.clone(),
                search_namespaces: options.search_namespaces,
                ..RendezvousOptions::new(options.run_dir.clone())
            },
            rpc,
            counters: owner.session.counters.clone(),
            owner,
            established: ArcSwapOption::empty(),
            next: AtomicU64::new(1),
            backoff: Mutex::new(ProbeBackoff::default()),
            reasons: Mutex::new(Vec::new()),
            probing: tokio::sync::Mutex::new(()),
            background: BackgroundProbe::default(),
            was_established: AtomicBool::new(false),
            had_lane,
            is_durable,
            last_limit_warning: Mutex::new(None),
            tree: ArcSwapOption::empty(),
            tree_requests: Mutex::default(),
            root: OnceLock::new(),
            seals: SealQueue::new(),
            changes: watch::Sender::new(()),
            files: Mutex::new(GrantedFiles::default()),
            in_memory: AtomicU64::new(0),
            without_nowait: AtomicU64::new(0),
            fallbacks: io::IoFallbacks::default(),
            open_prefetch: OpenPrefetch::new(getrlimit(Resource::Nofile).current, runtime.clone()),
            runtime,
        })
    }

    /// Says which directory the session's tree begins with.
    pub(crate) fn set_root(&self, root: &Handle) {
        let _ = self.root.set(root.clone());
    }

    /// Notes that a filesystem refuses RWF_NOWAIT, so that the next file opened on it needs no trial.
    pub(crate) fn note_nowait_support(&self, fsid: u64, support: NowaitSupport) {
        let last = if support == NowaitSupport::InMemory { &self.in_memory } else { &self.without_nowait };
        last.store(fsid, Relaxed);
    }

    /// Whether the filesystem of a file with these attributes supports RWF_NOWAIT.
    pub(crate) fn nowait_support(&self, attributes: Option<&Attributes>) -> NowaitSupport {
        let fsid = attributes.map_or(0, |attributes| attributes.fsid);
        match fsid {
            0 => NowaitSupport::Assumed,
            _ if self.in_memory.load(Relaxed) == fsid => NowaitSupport::InMemory,
            _ if self.without_nowait.load(Relaxed) == fsid => NowaitSupport::Unsupported,
            _ => NowaitSupport::Assumed,
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

    /// Whether a lane was ever established on the session's connections.
    pub(crate) fn was_ever_established(&self) -> bool {
        self.had_lane.load(Relaxed)
    }

    /// Reports a change of the lane to the attribute sink, and to tasks that wait for a lane.
    pub(super) fn report_change(&self) {
        self.changes.send_replace(());
        if let Some(sink) = &self.attribute_sink {
            sink.lane_changed(&self.report());
        }
    }

    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The live lane, if there is one.
    pub(super) fn live(&self) -> Option<Arc<EstablishedLane>> {
        self.established.load_full().filter(|established| established.is_live())
    }

    /// The lane that has ended and isn't given up yet, if there is one.
    pub(super) fn ended(&self) -> Option<Arc<EstablishedLane>> {
        self.established.load_full().filter(|established| !established.is_live())
    }

    pub(crate) fn is_established(&self) -> bool {
        self.live().is_some()
    }

    pub(crate) fn report(&self) -> LaneReport {
        if self.mode() == LaneMode::Off {
            let reasons = vec!["the lane is switched off for this session (lane=off)".to_owned()];
            return LaneReport { reasons, ..LaneReport::default() };
        }
        let (tree, tree_refusal) = self.report_tree();
        match self.live() {
            Some(established) => LaneReport {
                local: true,
                instance: Some(lane::nonce::hex(&established.lane.instance())),
                through: Some(established.lane.through().to_owned()),
                reasons: Vec::new(),
                tree,
                tree_refusal,
            },
            None => LaneReport { reasons: self.reasons.lock().clone(), ..LaneReport::default() },
        }
    }

    /// Whether lane `number` is live.
    pub(crate) fn is_live(&self, number: u64) -> bool {
        self.live().is_some_and(|established| established.number == number)
    }

    /// Notes that lane `number` has ended.
    pub(crate) fn lost(&self, number: u64) {
        let Some(established) =
            self.established.load_full().filter(|established| established.number == number)
        else {
            return;
        };
        let before = self.established.compare_and_swap(&established, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &established)) {
            tracing::debug!(number, "the lane has ended");
            self.end_tree();
            self.owner.session.set_call_socket(None);
            *self.reasons.lock() = vec![
                "the lane has ended: the server stopped or revoked it, or its NFS connection was closed"
                    .to_owned(),
            ];
            self.backoff.lock().lost(Instant::now());
            self.report_change();
        }
    }

    /// Gives up lane `number`, which has ended, and every grant from it, including those of idle files.
    pub(super) fn give_up(&self, number: u64) {
        self.release_grants(number);
        self.lost(number);
    }

    /// Registers a file with a grant, unless it has a number already. Returns its number.
    pub(crate) fn register(&self, file: Weak<dyn GrantHolder>, number: u64) -> u64 {
        if number != 0 {
            return number;
        }
        let mut files = self.files.lock();
        files.next += 1;
        let number = files.next;
        files.by_number.insert(number, file);
        number
    }

    /// Unregisters a file.
    pub(crate) fn unregister(&self, number: u64) {
        self.files.lock().by_number.remove(&number);
    }

    /// The timeout of an Open.
    pub(crate) fn open_timeout(&self) -> Duration {
        self.policy.timeout()
    }

    /// Makes every file release its grant from lane `number`.
    fn release_grants(&self, number: u64) {
        self.open_prefetch.clear();
        self.holders().for_each(|file| file.release_grant(number));
    }

    /// Releases the tree and the grants that the server has recalled.
    pub(super) fn release_recalled(&self) {
        self.open_prefetch.clear();
        self.end_recalled_tree();
        self.holders().for_each(|file| file.release_recalled());
        self.report_change();
    }

    /// The files with grants.
    fn holders(&self) -> impl Iterator<Item = Arc<dyn GrantHolder>> {
        let files: Vec<Weak<dyn GrantHolder>> = self.files.lock().by_number.values().cloned().collect();
        files.into_iter().filter_map(|file| file.upgrade())
    }

    /// Whether a probe in the background is due now.
    pub(super) fn is_due(&self, reconnects: u64) -> bool {
        let is_due = self.backoff.lock().is_due(Instant::now(), reconnects, self.throttle);
        self.owner.lane.is_some() && (is_due || self.ended().is_some())
    }
}
