//! What a node hears, and what it wants done.

use crate::database::{Database, Versioned};

/// What a [`Member`](crate::Member) hears. Each effect that says so is answered by one event, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed. To be reported at [`Member::next_tick`](crate::Member::next_tick) at the latest.
    Tick,
    /// The object may have changed: a notification, or the watch was lost and made again.
    Notified,
    /// Answers [`Effect::Read`].
    Read(Versioned),
    /// Answers [`Effect::Read`]: it failed, or got no answer in time.
    ReadFailed,
    /// Answers [`Effect::ProbeSession`]: the session is alive.
    SessionProbed,
    /// Answers [`Effect::ProbeSession`]: there was no answer in time.
    ProbeFailed,
    /// Answers [`Effect::Write`]: the contents are the new ones, and the object has this version.
    Written {
        /// The object's version after the write.
        version: u64,
    },
    /// Answers [`Effect::Write`]: the object had another version, and nothing was written.
    WriteRefused,
    /// Answers [`Effect::Write`]: nothing is known about it. It may still take effect.
    WriteFailed,
    /// Answers [`Effect::FindRecords`]: whether there are clients, or records that can't be read.
    RecordsFound(bool),
    /// Answers [`Effect::RemoveRecords`].
    RecordsRemoved,
    /// Answers [`Effect::Examine`].
    Examined(Fate),
    /// Answers [`Effect::StartEnforcing`]: no operation that gives state is running any more.
    Enforcing,
    /// Answers [`Effect::OpenRecords`].
    RecordsOpened,
    /// Answers [`Effect::Release`].
    Released,
    /// Answers [`Effect::ReleaseOwn`].
    OwnReleased,
    /// Answers [`Effect::AcceptReclaims`].
    ReclaimsAccepted,
    /// Answers [`Effect::EndReclaims`]: no reclaim is running any more.
    ReclaimsEnded,
    /// Answers [`Effect::FallSilent`]: clients get no answers any more.
    Silent,
    /// All clients that may reclaim have done so, or their time is up: those of the last
    /// [`Event::ReclaimsAccepted`], too.
    Reclaimed,
    /// The filesystem's metadata server has dropped this run's session.
    SessionLost,
    /// The server is to stop.
    Stop {
        /// Whether any client has state, or may reclaim some.
        has_clients: bool,
    },
}

/// What has become of the state that the filesystem held for a former run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The filesystem has held all of it until now.
    Held,
    /// The filesystem may have given it to others.
    Lost,
}

/// What a node wants done. Effects are executed in order, each after the one before it has ended;
/// [`Effect::Read`] and [`Effect::ProbeSession`] run beside the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read the grace database. Answer: [`Event::Read`] or [`Event::ReadFailed`]. Runs beside other effects.
    Read,
    /// Send the filesystem's metadata server a request in this run's session that no cache can answer, such
    /// as F_OFD_GETLK. Answer: [`Event::SessionProbed`] or [`Event::ProbeFailed`]; [`Event::SessionLost`] if
    /// the session is no more. Runs beside other effects.
    ProbeSession,
    /// Write the contents if the object still has that version, and notify the watchers. What to write is
    /// [`Database::difference`]. Answer: [`Event::Written`], [`Event::WriteRefused`] or
    /// [`Event::WriteFailed`].
    Write {
        /// The version that `old` was read with.
        version: u64,
        /// The contents with that version.
        old: Database,
        /// The contents to be written.
        new: Database,
    },
    /// Look whether the newest records of a node up to an epoch name any clients. Answer:
    /// [`Event::RecordsFound`], when it is known.
    FindRecords {
        /// The node.
        of: String,
        /// The newest epoch that counts.
        up_to: u64,
    },
    /// Remove all client records of a node: none of its clients may reclaim. Answer:
    /// [`Event::RecordsRemoved`], when they are removed.
    RemoveRecords {
        /// The node.
        of: String,
    },
    /// Find out whether these sessions are alive. A session that is this run's own, because the mount has
    /// outlived the process, is alive if the locks of the former run are kept. Answer: [`Event::Examined`],
    /// when it is known.
    Examine {
        /// The sessions.
        sessions: Vec<String>,
    },
    /// Give no new state. Answer: [`Event::Enforcing`], when the operations that are giving some have ended.
    /// [`Member::service`](crate::Member::service) has said so already.
    StartEnforcing,
    /// Create this node's records for an epoch, or empty them, and record clients there from now on. With
    /// [`Carry::Recorded`], clients that lose their records until [`Effect::Resume`] lose those of the last
    /// epoch, too: until all nodes enforce, others may get their state, and a crash would make the last
    /// epoch's records count. Answer: [`Event::RecordsOpened`], when it is done.
    OpenRecords {
        /// The epoch.
        epoch: u64,
        /// The clients that the records begin with.
        carry: Carry,
    },
    /// Release the state that the filesystem holds for former runs: evict these sessions. Those that don't
    /// exist count as evicted. Answer: [`Event::Released`], when it is done.
    Release {
        /// The sessions; this run's own isn't among them.
        sessions: Vec<String>,
    },
    /// Release all state that this run holds for its clients, which keep their records: another node accepts
    /// their reclaims. Answer: [`Event::OwnReleased`], when others could get it.
    ReleaseOwn,
    /// Accept reclaims of the clients in the newest records of these nodes, in addition to those that are
    /// being accepted, for a lease at least. Answer: [`Event::ReclaimsAccepted`], when it is known which
    /// clients these are.
    AcceptReclaims {
        /// This node, and the nodes whose clients it takes over.
        of: Vec<String>,
        /// The newest epoch whose records count.
        up_to: u64,
    },
    /// Take over the address of a node whose clients this node takes over: they may come. Nothing is
    /// awaited; a run that starts again in the same grace period says it again.
    TakeAddress {
        /// The node.
        of: String,
    },
    /// Accept no reclaims any more. Answer: [`Event::ReclaimsEnded`], when none is running.
    EndReclaims,
    /// Give new state from now on. This node's records of epochs before this one are of no use any more.
    Resume {
        /// The current epoch.
        epoch: u64,
    },
    /// Answer clients no more, and keep what the filesystem holds. Answer: [`Event::Silent`], when no request
    /// is running. The address is given up.
    FallSilent,
    /// Start again as a new run, with a new [`Member`](crate::Member).
    Restart(RestartReason),
    /// End: the node has stopped, was drained, or isn't a member.
    Leave,
}

/// The clients with which new records begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// None: this run has no clients yet.
    Nothing,
    /// The clients that are recorded in this run's records of the last epoch.
    Recorded,
}

/// Why a node has to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestartReason {
    /// It was without contact for too long.
    #[error("RADOS couldn't be reached for too long")]
    LostContact,
    /// The metadata server has dropped the session.
    #[error("the filesystem's metadata server has dropped the session")]
    LostSession,
    /// The database contradicts what the node has written.
    #[error("the grace database was changed by others than its nodes")]
    Contradiction,
}

/// What a server may answer its clients now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// New state is given, and none is reclaimed.
    Normal,
    /// No new state (`NFS4ERR_GRACE`). What clients have is confirmed. They may reclaim between
    /// [`Effect::AcceptReclaims`] and [`Effect::EndReclaims`].
    Grace,
    /// Nothing is given or confirmed: no answers.
    Silent,
}
