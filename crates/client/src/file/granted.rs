//! A grant with what belongs to it: whether something written through it is not durable yet, and how its
//! reads and writes go.

use std::io as stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use io::{IoMode, Stability, trace};
use lane::Grant;

use super::syncs::Syncs;
use super::waiting::Waiting;
use super::way::Way;
use crate::lane::NowaitSupport;
use crate::types::Handle;

/// statfs(2)'s types of filesystems in memory: tmpfs and ramfs (linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A grant with what belongs to it.
#[derive(Debug)]
pub(crate) struct FileGrant {
    pub(super) grant: Grant,
    /// The lane's number in the session.
    pub(crate) lane: u64,
    /// The server's write verifier when it was given.
    pub(super) verifier: [u8; 8],
    /// Written since the last sync began.
    dirty: AtomicBool,
    /// Others write through the descriptor, unseen: it is never known to be clean.
    passed: AtomicBool,
    syncs: Syncs,
    pub(super) waiting: Waiting,
    in_memory: OnceLock<bool>,
    /// Reads and writes are nothing but system calls on the grant.
    pub(super) plain_reads: bool,
    pub(super) plain_writes: bool,
    pub(super) way: Way,
}

impl FileGrant {
    /// `medium`: what other files have shown of the filesystem.
    pub(crate) fn new(grant: Grant, lane: u64, verifier: [u8; 8], medium: NowaitSupport) -> Self {
        let modes = grant.modes();
        Self {
            plain_reads: modes.read == IoMode::Buffered,
            plain_writes: modes.write == IoMode::Buffered,
            way: Way::new(modes),
            grant,
            lane,
            verifier,
            dirty: AtomicBool::new(false),
            passed: AtomicBool::new(false),
            syncs: Syncs::default(),
            waiting: Waiting::new(medium),
            in_memory: OnceLock::new(),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.grant.is_live()
    }

    /// Whether its filesystem is in memory: then no call waits for a disk.
    pub(super) fn is_in_memory(&self) -> bool {
        *self.in_memory.get_or_init(|| {
            rustix::fs::fstatfs(&self.grant).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
        })
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(SeqCst) || self.is_passed_on()
    }

    /// A write has gone to the file. After it, not before: a sync that begins in between would forget it.
    pub(super) fn mark_dirty(&self) {
        if !self.dirty.load(SeqCst) {
            self.dirty.store(true, SeqCst);
        }
    }

    /// The descriptor goes to somebody who may write through it from now on.
    pub(super) fn pass_on(&self) {
        self.passed.store(true, SeqCst);
    }

    pub(super) fn is_passed_on(&self) -> bool {
        self.passed.load(SeqCst)
    }

    /// Makes durable what was written to the file of this handle, if there is anything; returns whether there
    /// was. Doesn't ask the interlock: what was acknowledged must become durable even if the server has taken
    /// the grant back.
    pub(super) fn sync(&self, handle: &Handle) -> stdio::Result<bool> {
        self.syncs.run(|| {
            if !self.dirty.swap(false, SeqCst) && !self.is_passed_on() {
                return Ok(false);
            }
            // All of it, which is what a length of 0 says in a COMMIT, too.
            trace::commit_start(handle.as_bytes(), 0, 0);
            io::sync(&self.grant, Stability::FileSync)?;
            trace::commit_done(handle.as_bytes(), 0, 0);
            Ok(true)
        })
    }
}
