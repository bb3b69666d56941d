//! Probes for a lane. A session that requires a lane repeats them until there is one or the server refuses.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lane::{Candidates, Lane, NotLocal, Reason, Rendezvous};
use proto::localio;
use rpc::client::Request;

use super::{EstablishedLane, LaneManager, watch};
use crate::counters::bump;
use crate::error::{Error, Result, RpcError};
use crate::options::LaneMode;

/// The timeout of UUID_IS_LOCAL, which is also the lifetime of a nonce.
const UUID_IS_LOCAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for a connection from a privileged server that searches the namespaces for this client.
const SERVER_SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of handshakes in one probe. A handshake is repeated after a reconnect.
const MAX_HANDSHAKES: u32 = 8;

/// A probe found no lane.
pub(crate) struct ProbeFailure {
    /// Sentences for an administrator.
    reasons: Vec<String>,
    cause: ProbeFailureCause,
}

/// Decides whether a session that requires a lane probes again.
enum ProbeFailureCause {
    /// The server answers and offers no lane.
    Refused,
    /// The server is stopping, starting, or hasn't answered in time.
    Temporary,
    /// The session's retransmission policy has given up on the server.
    Wire(rpc::client::Error),
}

impl ProbeFailure {
    fn new(cause: ProbeFailureCause, reason: String) -> Self {
        Self { reasons: vec![reason], cause }
    }
}

impl From<NotLocal> for ProbeFailure {
    fn from(none: NotLocal) -> Self {
        let draining = |reason: &Reason| {
            matches!(reason, Reason::Refused { refusal: lane::message::HandshakeRefusal::Draining, .. })
        };
        let cause = if none.reasons.iter().any(draining) {
            ProbeFailureCause::Temporary
        } else {
            ProbeFailureCause::Refused
        };
        Self { reasons: none.reasons.iter().map(ToString::to_string).collect(), cause }
    }
}

impl LaneManager {
    /// Makes the probe at the beginning of a session. Only a session that requires a lane waits for a server
    /// that searches for this client; otherwise that continues in the background.
    ///
    /// # Errors
    /// With a required lane, that there is none.
    pub(crate) async fn initial_probe(self: &Arc<Self>) -> Result<()> {
        if self.mode() == LaneMode::Required {
            return self.required_lane().await.map(drop);
        }
        self.probe_once(false).await;
        Ok(())
    }

    /// Probes until there is a lane or the server refuses. While the server stops, starts or doesn't answer,
    /// probes are repeated with the backoff: for ever in a hard session, and for the time of a call in a soft
    /// one. Returns `None` if a lane isn't required any more.
    ///
    /// # Errors
    /// [`Error::NoLane`]; [`Error::Rpc`] when the session's policy gives up on the server.
    pub(super) async fn required_lane(self: &Arc<Self>) -> Result<Option<Arc<EstablishedLane>>> {
        let began = Instant::now();
        loop {
            if self.mode() != LaneMode::Required {
                return Ok(self.live());
            }
            let failure = self.probe_once(true).await;
            if let Some(established) = self.live() {
                return Ok(Some(established));
            }
            let spent = !self.policy.hard && began.elapsed() >= self.policy.timeout();
            match failure.map(|failure| failure.cause) {
                Some(ProbeFailureCause::Wire(source)) => {
                    return Err(Error::Rpc { object: "UUID_IS_LOCAL".to_owned(), source: RpcError(source) });
                }
                Some(ProbeFailureCause::Refused) => break,
                _ if spent => break,
                Some(ProbeFailureCause::Temporary) => {}
                // A lane was established and has ended already.
                None => drop(self.backoff.lock().failed(Instant::now(), true)),
            }
            let at = self.backoff.lock().not_before.unwrap_or_else(Instant::now);
            tokio::time::sleep_until(at.into()).await;
        }
        Err(Error::NoLane { object: String::new(), reasons: self.report().reasons })
    }

    /// Makes one probe. `wait` says whether to wait for a server that searches for this client, too.
    pub(crate) async fn probe_once(self: &Arc<Self>, wait: bool) -> Option<ProbeFailure> {
        let _one = self.probing.lock().await;
        if self.is_established() {
            return None;
        }
        // The task that watches it may come later.
        if let Some(ended) = self.ended() {
            self.give_up(ended.number);
        }
        bump(&self.counters.probes);
        self.backoff.lock().begin(self.rpc.stats().reconnects);
        let result = self.handshake(wait).await;
        self.conclude(result).await
    }

    async fn conclude(self: &Arc<Self>, result: Result<Lane, ProbeFailure>) -> Option<ProbeFailure> {
        match result {
            Ok(lane) => {
                let number = self.next.fetch_add(1, Relaxed);
                let manager = Arc::downgrade(self);
                let generation = lane.generation();
                let watch = watch(manager, lane.clone(), number, generation);
                let watch = self.runtime.spawn(watch).abort_handle();
                self.was_established.store(true, Relaxed);
                self.had_lane.store(true, Relaxed);
                // `had_lane` must be set before this. Afterwards the server replies before changes are
                // durable, and `sync_metadata` sends a COMMIT only if there was a lane.
                if !self.is_durable {
                    lane.go_async();
                }
                self.established.store(Some(Arc::new(EstablishedLane { lane, number, watch })));
                self.backoff.lock().succeeded();
                self.reasons.lock().clear();
                if self.mode() == LaneMode::Off {
                    // The mode was changed during the probe.
                    self.give_up(number);
                } else {
                    self.await_tree().await;
                    self.open_call_socket().await;
                    self.report_change();
                }
                None
            }
            Err(failure) => {
                tracing::debug!(reasons = ?failure.reasons, "no lane");
                self.reasons.lock().clone_from(&failure.reasons);
                let again = self.was_established.load(Relaxed)
                    || matches!(failure.cause, ProbeFailureCause::Temporary);
                self.backoff.lock().failed(Instant::now(), again);
                Some(failure)
            }
        }
    }

    /// Makes a handshake. If the server restarts between registration and UUID_IS_LOCAL, the new one doesn't
    /// know the nonce. So a handshake during which the NFS connection was made again is repeated.
    async fn handshake(self: &Arc<Self>, wait: bool) -> Result<Lane, ProbeFailure> {
        if self.owner.lane.is_none() {
            let reason = "a lane needs AUTH_SYS, and this session uses AUTH_NONE".to_owned();
            return Err(ProbeFailure::new(ProbeFailureCause::Refused, reason));
        }
        for _ in 0..MAX_HANDSHAKES {
            let before = self.rpc.stats().reconnects;
            let mut candidates = Rendezvous::register(self.rendezvous.clone()).await.map_err(|error| {
                ProbeFailure::new(ProbeFailureCause::Refused, format!("no nonce could be made: {error}"))
            })?;
            self.localio(localio::Procedure::UuidIsLocal, Some(candidates.nonce())).await?;
            if self.rpc.stats().reconnects != before {
                continue;
            }
            if let Some(lane) = candidates.look() {
                return Ok(lane);
            }
            if candidates.may_be_called() && !wait {
                self.finish_later(candidates);
                let reason = "no rendezvous found; still waiting to be called by a privileged server";
                return Err(ProbeFailure::new(ProbeFailureCause::Refused, reason.to_owned()));
            }
            let mut failure = match finish(candidates).await {
                Ok(lane) => return Ok(lane),
                Err(failure) => failure,
            };
            // The server has refused, or it has restarted after it received the nonce. A call on the same
            // connection shows which.
            if self.mode() == LaneMode::Required && matches!(failure.cause, ProbeFailureCause::Refused) {
                self.localio(localio::Procedure::Null, None).await?;
                if self.rpc.stats().reconnects != before {
                    failure.cause = ProbeFailureCause::Temporary;
                }
            }
            return Err(failure);
        }
        let reason = format!("the connection to {} does not last", self.rpc.address());
        Err(ProbeFailure::new(ProbeFailureCause::Temporary, reason))
    }

    /// Calls the LOCALIO program over the NFS connection, with the nonce if the procedure has one.
    async fn localio(
        &self,
        procedure: localio::Procedure,
        nonce: Option<[u8; 16]>,
    ) -> Result<(), ProbeFailure> {
        let server = self.rpc.address();
        let request = Request {
            program: localio::PROGRAM,
            version: localio::VERSION,
            procedure: procedure.number(),
            credential: &self.owner.wire,
            payload: Bytes::new(),
            trailer: Bytes::new(),
            receive: None,
        };
        let call = self.rpc.call(request, |to| {
            if let Some(uuid) = nonce {
                to.put(&localio::UuidIsLocalArgs { uuid });
            }
        });
        match tokio::time::timeout(UUID_IS_LOCAL_TIMEOUT, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(rpc::client::Error::ProgramUnavailable { .. })) => Err(ProbeFailure::new(
                ProbeFailureCause::Refused,
                format!(
                    "the server at {server} does not offer LOCALIO (RPC program 400122): it is no Samehost \
                     server, or was started with --lane off"
                ),
            )),
            Ok(Err(error)) if error.is_timeout() => Err(ProbeFailure {
                reasons: vec![format!("UUID_IS_LOCAL failed: {error}")],
                cause: ProbeFailureCause::Wire(error),
            }),
            Ok(Err(error)) => {
                Err(ProbeFailure::new(ProbeFailureCause::Refused, format!("UUID_IS_LOCAL failed: {error}")))
            }
            Err(_) => Err(ProbeFailure::new(
                ProbeFailureCause::Temporary,
                format!(
                    "the server at {server} did not answer UUID_IS_LOCAL within {UUID_IS_LOCAL_TIMEOUT:?}"
                ),
            )),
        }
    }

    /// Waits in the background for a server that searches for this client.
    fn finish_later(self: &Arc<Self>, candidates: Candidates) {
        let manager = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let result = finish(candidates).await;
            if let Some(manager) = manager.upgrade()
                && !manager.is_established()
            {
                manager.conclude(result).await;
            }
        });
    }
}

async fn finish(candidates: Candidates) -> Result<Lane, ProbeFailure> {
    candidates.finish(SERVER_SEARCH_TIMEOUT).await.map_err(ProbeFailure::from)
}
