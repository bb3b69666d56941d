//! One probe, and for a session that must have a lane as many as it takes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lane::{Candidates, Lane, NotLocal, Reason, Rendezvous};
use proto::localio;
use rpc::client::Request;

use super::{LaneReport, Up, watch};
use crate::counters::bump;
use crate::error::{Error, Result};
use crate::options::LaneMode;
use crate::session::Session;

/// How long the server may take to answer UUID_IS_LOCAL: a nonce lives no longer.
const ANSWER: Duration = Duration::from_secs(10);

/// How long to wait to be called by a privileged server that looks for us.
const CALLED: Duration = Duration::from_secs(2);

/// How often a handshake begins anew because the connection did.
const ANEW: u32 = 8;

/// A probe found no lane.
pub(super) struct Missing {
    /// Why, in words.
    reasons: Vec<String>,
    /// Why, for a session that must have one.
    cause: Cause,
}

/// Whether another probe could find more.
pub(super) enum Cause {
    /// The server, which is there and answers, gives none.
    No,
    /// The server is stopping, starting, or hasn't answered in time.
    Later,
    /// The session's policy has given up on the server.
    Wire(rpc::client::Error),
}

impl Missing {
    fn new(cause: Cause, reason: String) -> Self {
        Self { reasons: vec![reason], cause }
    }
}

impl From<NotLocal> for Missing {
    fn from(none: NotLocal) -> Self {
        let draining = |reason: &Reason| {
            matches!(reason, Reason::Refused { refusal: lane::message::HandshakeRefusal::Draining, .. })
        };
        let cause = if none.reasons.iter().any(draining) { Cause::Later } else { Cause::No };
        Self { reasons: none.reasons.iter().map(ToString::to_string).collect(), cause }
    }
}

impl Session {
    /// Looks for a lane now, whatever the backoff says, and reports.
    pub async fn probe(&self) -> LaneReport {
        if self.inner.lane.mode() != LaneMode::Off {
            self.probe_once(true).await;
        }
        self.lane()
    }

    /// The probe at the beginning of a session. A server that may call us is waited for only if there must be
    /// a lane; else that goes on in the background.
    ///
    /// # Errors
    /// With a required lane, that there is none.
    pub(crate) async fn probe_at_first(&self) -> Result<()> {
        if self.inner.lane.mode() == LaneMode::Required {
            return self.lane_that_must_be().await.map(drop);
        }
        self.probe_once(false).await;
        Ok(())
    }

    /// Probes until there is a lane or the server says that there is none: with the backoff, while the server
    /// stops, starts or doesn't answer; for ever in a hard session, and as long as a call may take in a soft
    /// one. `None`: it need not be any more.
    ///
    /// # Errors
    /// [`Error::NoLane`]; [`Error::Rpc`] when the session's policy gives up on the server.
    pub(super) async fn lane_that_must_be(&self) -> Result<Option<Arc<Up>>> {
        let manager = &self.inner.lane;
        let began = Instant::now();
        loop {
            if manager.mode() != LaneMode::Required {
                return Ok(manager.live());
            }
            let missing = self.probe_once(true).await;
            if let Some(up) = manager.live() {
                return Ok(Some(up));
            }
            let spent = !manager.policy.hard && began.elapsed() >= manager.policy.timeout();
            match missing.map(|missing| missing.cause) {
                Some(Cause::Wire(source)) => {
                    return Err(Error::Rpc { object: "UUID_IS_LOCAL".to_owned(), source });
                }
                Some(Cause::No) => break,
                _ if spent => break,
                Some(Cause::Later) => {}
                // There was one, and it has gone already.
                None => drop(manager.backoff.lock().failed(Instant::now(), true)),
            }
            let at = manager.backoff.lock().not_before.unwrap_or_else(Instant::now);
            tokio::time::sleep_until(at.into()).await;
        }
        Err(Error::NoLane { object: String::new(), reasons: manager.report().reasons })
    }

    /// One probe. `wait`: for a server that looks for us, too.
    pub(super) async fn probe_once(&self, wait: bool) -> Option<Missing> {
        let manager = &self.inner.lane;
        let _one = manager.probing.lock().await;
        if manager.is_up() {
            return None;
        }
        bump(&self.inner.counters.probes);
        manager.backoff.lock().begin(self.inner.rpc.stats().reconnects);
        let result = self.handshake(wait).await;
        self.conclude(result)
    }

    fn conclude(&self, result: Result<Lane, Missing>) -> Option<Missing> {
        let manager = &self.inner.lane;
        match result {
            Ok(lane) => {
                let number = manager.next.fetch_add(1, Relaxed);
                let session = Arc::downgrade(&self.inner);
                let watch = manager.runtime.spawn(watch(session, lane.clone(), number)).abort_handle();
                manager.was_up.store(true, Relaxed);
                // Not before: from now on whoever syncs asks whether there has been a lane.
                lane.go_async();
                manager.up.store(Some(Arc::new(Up { lane, number, watch })));
                manager.backoff.lock().succeeded();
                manager.reasons.lock().clear();
                if manager.mode() == LaneMode::Off {
                    // Switched off meanwhile.
                    manager.give_up(number);
                } else {
                    manager.announce();
                }
                None
            }
            Err(missing) => {
                tracing::debug!(reasons = ?missing.reasons, "no lane");
                manager.reasons.lock().clone_from(&missing.reasons);
                let again = manager.was_up.load(Relaxed) || matches!(missing.cause, Cause::Later);
                manager.backoff.lock().failed(Instant::now(), again);
                Some(missing)
            }
        }
    }

    /// Whoever registers with a server that dies before the nonce comes has registered with nobody: as long
    /// as the connection is made anew meanwhile, it begins again.
    async fn handshake(&self, wait: bool) -> Result<Lane, Missing> {
        let manager = &self.inner.lane;
        if !manager.has_owner {
            let reason = "a lane needs AUTH_SYS, and this session uses AUTH_NONE".to_owned();
            return Err(Missing::new(Cause::No, reason));
        }
        for _ in 0..ANEW {
            let before = self.inner.rpc.stats().reconnects;
            let mut candidates = Rendezvous::register(manager.rendezvous.clone())
                .await
                .map_err(|error| Missing::new(Cause::No, format!("no nonce could be made: {error}")))?;
            self.localio(localio::Procedure::UuidIsLocal, Some(candidates.nonce())).await?;
            if self.inner.rpc.stats().reconnects != before {
                continue;
            }
            if let Some(lane) = candidates.look() {
                return Ok(lane);
            }
            if candidates.may_be_called() && !wait {
                self.finish_later(candidates);
                let reason = "no rendezvous found; still waiting to be called by a privileged server";
                return Err(Missing::new(Cause::No, reason.to_owned()));
            }
            let mut missing = match finish(candidates).await {
                Ok(lane) => return Ok(lane),
                Err(missing) => missing,
            };
            // Has the server that knew the nonce said no, or has it died meanwhile? One that answers is
            // alive.
            if manager.mode() == LaneMode::Required && matches!(missing.cause, Cause::No) {
                self.localio(localio::Procedure::Null, None).await?;
                if self.inner.rpc.stats().reconnects != before {
                    missing.cause = Cause::Later;
                }
            }
            return Err(missing);
        }
        let reason = format!("the connection to {} does not last", self.inner.rpc.address());
        Err(Missing::new(Cause::Later, reason))
    }

    /// A call to the LOCALIO program over the NFS connection, with a nonce for the procedure that has one.
    async fn localio(&self, procedure: localio::Procedure, nonce: Option<[u8; 16]>) -> Result<(), Missing> {
        let server = self.inner.rpc.address();
        let request = Request {
            program: localio::PROGRAM,
            version: localio::VERSION,
            procedure: procedure.number(),
            credential: &self.inner.owner.wire,
            payload: Bytes::new(),
            receive: None,
        };
        let call = self.inner.rpc.call(request, |to| {
            if let Some(uuid) = nonce {
                to.put(&localio::UuidIsLocalArgs { uuid });
            }
        });
        match tokio::time::timeout(ANSWER, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(rpc::client::Error::ProgramUnavailable { .. })) => Err(Missing::new(
                Cause::No,
                format!(
                    "the server at {server} does not offer LOCALIO (RPC program 400122): it is no Samehost \
                     server, or was started with --lane off"
                ),
            )),
            Ok(Err(error)) if error.is_timeout() => Err(Missing {
                reasons: vec![format!("UUID_IS_LOCAL failed: {error}")],
                cause: Cause::Wire(error),
            }),
            Ok(Err(error)) => Err(Missing::new(Cause::No, format!("UUID_IS_LOCAL failed: {error}"))),
            Err(_) => Err(Missing::new(
                Cause::Later,
                format!("the server at {server} did not answer UUID_IS_LOCAL within {ANSWER:?}"),
            )),
        }
    }

    /// Waits in the background for a server that looks for us.
    fn finish_later(&self, candidates: Candidates) {
        let session = Arc::downgrade(&self.inner);
        self.inner.lane.runtime.spawn(async move {
            let result = finish(candidates).await;
            if let Some(inner) = session.upgrade() {
                let session = Self { user: inner.owner.clone(), inner };
                if !session.inner.lane.is_up() {
                    session.conclude(result);
                }
            }
        });
    }
}

async fn finish(candidates: Candidates) -> Result<Lane, Missing> {
    candidates.finish(CALLED).await.map_err(Missing::from)
}
