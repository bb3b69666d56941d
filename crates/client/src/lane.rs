//! The session's lane: its establishment, its loss, and opens over it.
//!
//! A probe registers a nonce at every rendezvous of this host, sends it to the server over the NFS
//! connection, and checks whether one of the rendezvous answers. The session probes when it begins. Later it
//! probes in the background, at the next I/O after the lane was lost, after a reconnect, or (if set) after
//! `probe_throttle` reads and writes over the wire, and never more often than the backoff allows. A session
//! that requires a lane waits for the probe, and repeats it while the server restarts or drains.
//!
//! If the server doesn't reply to an Open within the time of a call (`timeo × (retrans + 1)`), the client
//! gives up the lane. The rules of the wire then apply to the session.

mod background_probe;
mod backoff;
mod call_socket;
mod lane_manager;
mod mount_grant;
mod open;
mod probe;
mod tree;

use std::fmt::Debug;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Instant;

use lane::{Lane, LaneState};

use crate::error::Result;
use crate::operations::WireOpen;
use crate::options::LaneMode;
use crate::types::{Access, Attributes, Handle};

use lane_manager::EstablishedLane;
pub(crate) use lane_manager::{LaneManager, NowaitSupport};
pub use mount_grant::{MountGrant, MountRefusal};
pub(crate) use open::{LaneOpen, OpenPurpose};
pub(crate) use tree::{GrantedTree, OpenedInTree};

/// The result of an open, of which a [`crate::File`] is made.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) handle: Handle,
    pub(crate) attributes: Option<Attributes>,
    /// The grant, its lane's number, and the server's write verifier.
    pub(crate) granted: Option<(lane::Grant, u64, [u8; 8])>,
    /// The reason if the lane refused a grant.
    pub(crate) refused: Option<lane::OpenStatus>,
    /// What the server holds for the open. `None` if it wasn't opened over the wire.
    pub(crate) state: Option<WireState>,
    /// Whether the open is known to have created the file.
    pub(crate) is_new: bool,
}

/// What an open has got from the server over the wire.
#[derive(Debug, Default)]
pub(crate) struct WireState {
    /// The open's state, which NFSv3 doesn't have.
    pub(crate) open: Option<WireOpen>,
    /// The rights of the user, if the server sent them.
    pub(crate) access: Option<Access>,
    /// All that is in the file, if the open has read it.
    pub(crate) content: Option<Vec<u8>>,
}

impl OpenedFile {
    /// An open without a grant and without state.
    pub(crate) const fn new(handle: Handle, attributes: Option<Attributes>) -> Self {
        Self { handle, attributes, granted: None, refused: None, state: None, is_new: false }
    }
}

/// The holder of a grant, which releases it when the lane or the grant ends. The holder may be idle.
pub(crate) trait GrantHolder: Debug + Send + Sync {
    /// Releases the grant if it is from lane `number`.
    fn release_grant(self: Arc<Self>, number: u64);

    /// Releases the grant if the server has recalled it.
    fn release_recalled(self: Arc<Self>);
}

/// Answers the server's recalls until a lane ends, and then gives it up. So an idle session releases what it
/// holds, too: the server's administrator may be waiting to unmount the filesystem.
async fn watch(manager: Weak<LaneManager>, lane: Lane, number: u64, mut generation: u64) {
    loop {
        lane.changed(generation).await;
        let Some(manager) = manager.upgrade() else { return };
        if lane.state() != LaneState::Live {
            drop(lane);
            return manager.give_up(number);
        }
        generation = lane.generation();
        manager.release_recalled();
    }
}

impl LaneManager {
    /// Changes the mode, and probes for a lane in the background if the new one needs it.
    pub(crate) fn set_mode(self: &Arc<Self>, mode: LaneMode) {
        let before = self.mode.swap(mode as u8, SeqCst);
        if before == mode as u8 {
            return;
        }
        match self.established.load_full() {
            Some(established) if mode == LaneMode::Off => {
                established.lane.end();
                self.give_up(established.number);
            }
            Some(_) => self.report_change(),
            None => {
                self.report_change();
                if mode != LaneMode::Off {
                    self.probe_in_background();
                }
            }
        }
    }

    fn probe_in_background(self: &Arc<Self>) {
        if self.background.want() {
            let manager = self.clone();
            self.runtime.spawn(async move {
                loop {
                    manager.probe_once(true).await;
                    if !manager.background.done() {
                        break;
                    }
                }
            });
        }
    }

    /// The lane epoch for the next I/O of a file without a grant: a number that changes with every lane and
    /// every round of the backoff. A file requests a grant once in each epoch. Without a lane this starts a
    /// probe if one is due, and returns `None`; a session that requires a lane waits for the probe.
    ///
    /// # Errors
    /// With a required lane, that there is none.
    pub(crate) async fn epoch_for_io(self: &Arc<Self>) -> Result<Option<u64>> {
        let epoch = |established: &EstablishedLane| {
            let round = self.backoff.lock().round(Instant::now(), self.throttle);
            established.number << 32 | u64::from(round)
        };
        if let Some(established) = self.live() {
            return Ok(Some(epoch(&established)));
        }
        if self.mode() == LaneMode::Required {
            // Boxed, because the future is large and seldom needed.
            return Ok(Box::pin(self.required_lane()).await?.as_deref().map(epoch));
        }
        if self.is_due(self.rpc.stats().reconnects) {
            self.probe_in_background();
        }
        Ok(None)
    }
}
