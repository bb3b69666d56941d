//! The session's lane: looking for one, losing it, looking again.
//!
//! A probe is: register a nonce at every rendezvous of this host, send it to the server over the NFS
//! connection, and see whether one of the rendezvous answers. It is made when the session begins; after a
//! lane was lost, a reconnect, or (if set) every `probe_throttle` reads and writes on the wire, at the next
//! I/O and in the background; and never more often than the backoff allows. A session that must have a lane
//! waits for the probe, and for the next one while the server comes back or drains.
//!
//! A lane whose server doesn't answer an Open for as long as a call may take (`timeo × (retrans + 1)`) is
//! given up: the wire decides what becomes of the session, by its own rules.

mod ask;
mod backoff;
mod lane_manager;
mod probe;

use std::sync::Weak;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use lane::Lane;

use crate::error::Result;
use crate::options::LaneMode;
use crate::session::{Inner as SessionInner, Session};

pub(crate) use ask::{Answer, Purpose};
pub(crate) use lane_manager::LaneManager;
use lane_manager::Up;

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

/// Waits until a lane goes, and then takes it out of use, also for files that are idle.
async fn watch(session: Weak<SessionInner>, lane: Lane, number: u64) {
    lane.gone().await;
    drop(lane);
    if let Some(session) = session.upgrade() {
        session.lane.give_up(number);
    }
}

impl Session {
    /// Whether to use the lane from now on: the mode that the session was made with is only the first. When
    /// it is switched off, files with a grant go on over the wire with their next read or write; when it is
    /// switched on, a lane is looked for in the background ([`Session::probe`] waits for it).
    pub fn set_lane_mode(&self, mode: LaneMode) {
        let lane_manager = &self.inner.lane;
        let before = lane_manager.mode.swap(mode as u8, SeqCst);
        if before == mode as u8 {
            return;
        }
        match lane_manager.up.load_full() {
            Some(up) if mode == LaneMode::Off => {
                up.lane.end();
                lane_manager.give_up(up.number);
            }
            Some(_) => lane_manager.announce(),
            None => {
                lane_manager.announce();
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

    /// The occasion for a file without a grant to ask for one before its next I/O: a number that is another
    /// one for every lane and every round. Without a lane, a probe is begun if it is due; where one is
    /// required, it is waited for, and finding none is an error.
    pub(crate) async fn lane_for_io(&self) -> Result<Option<u64>> {
        let lane_manager = &self.inner.lane;
        let occasion = |up: &Up| {
            let round = lane_manager.backoff.lock().round(Instant::now(), lane_manager.throttle);
            up.number << 32 | u64::from(round)
        };
        if let Some(up) = lane_manager.live() {
            return Ok(Some(occasion(&up)));
        }
        if lane_manager.mode() == LaneMode::Required {
            // In a box: it is rare, and large.
            return Ok(Box::pin(self.lane_that_must_be()).await?.as_deref().map(occasion));
        }
        if lane_manager.is_due(self.inner.rpc.stats().reconnects) {
            self.probe_in_background();
        }
        Ok(None)
    }
}
