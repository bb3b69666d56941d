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

mod backoff;
mod lane_manager;
mod open;
mod probe;

use std::sync::Weak;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use lane::Lane;

use crate::error::Result;
use crate::options::LaneMode;
use crate::session::{Inner as SessionInner, Session};

use lane_manager::EstablishedLane;
pub(crate) use lane_manager::LaneManager;
pub(crate) use open::{LaneOpen, OpenPurpose};

/// Whether the session is local, and if not, why not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneReport {
    /// Whether there is a lane now.
    pub local: bool,
    /// The server's instance, 32 hexadecimal digits, while there is a lane.
    pub instance: Option<String>,
    /// The rendezvous through which it was established, in words.
    pub through: Option<String>,
    /// Why there is none: one sentence for each candidate or cause, with something that an administrator can
    /// act on.
    pub reasons: Vec<String>,
}

/// Waits until a lane ends and then gives it up, so that idle files release their grants, too.
async fn watch(session: Weak<SessionInner>, lane: Lane, number: u64) {
    lane.gone().await;
    drop(lane);
    if let Some(session) = session.upgrade() {
        session.lane.give_up(number);
    }
}

impl Session {
    /// Changes the lane mode that [`crate::Options::lane`] has set. After `Off`, files with a grant use the
    /// wire from their next read or write on. After another mode, the session probes for a lane in the
    /// background ([`Session::probe`] waits for it).
    pub fn set_lane_mode(&self, mode: LaneMode) {
        let lane_manager = &self.inner.lane;
        let before = lane_manager.mode.swap(mode as u8, SeqCst);
        if before == mode as u8 {
            return;
        }
        match lane_manager.established.load_full() {
            Some(established) if mode == LaneMode::Off => {
                established.lane.end();
                lane_manager.give_up(established.number);
            }
            Some(_) => lane_manager.report_change(),
            None => {
                lane_manager.report_change();
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

    /// The lane epoch for the next I/O of a file without a grant: a number that changes with every lane and
    /// every round of the backoff. A file requests a grant once in each epoch. Without a lane this starts a
    /// probe if one is due, and returns `None`; a session that requires a lane waits for the probe.
    ///
    /// # Errors
    /// With a required lane, that there is none.
    pub(crate) async fn lane_for_io(&self) -> Result<Option<u64>> {
        let lane_manager = &self.inner.lane;
        let epoch = |established: &EstablishedLane| {
            let round = lane_manager.backoff.lock().round(Instant::now(), lane_manager.throttle);
            established.number << 32 | u64::from(round)
        };
        if let Some(established) = lane_manager.live() {
            return Ok(Some(epoch(&established)));
        }
        if lane_manager.mode() == LaneMode::Required {
            // Boxed, because the future is large and seldom needed.
            return Ok(Box::pin(self.required_lane()).await?.as_deref().map(epoch));
        }
        if lane_manager.is_due(self.inner.rpc.stats().reconnects) {
            self.probe_in_background();
        }
        Ok(None)
    }
}
