//! Opens over the lane, and the fallback where it gives no grant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lane::{NewFile, OpenError, OpenRequest, OpenStatus, OpenedGrant, Target};

use super::OpenedFile;
use super::backoff::pause;
use super::lane_manager::{EstablishedLane, LaneManager};
use crate::attribute_sink::{AttributeUpdate, PreOpAttributes};
use crate::counters::bump;
use crate::error::{Error, OpenFileLimit, Result};
use crate::open_prefetch::OpenTarget;
use crate::options::LaneMode;
use crate::types::Handle;
use crate::user::User;

/// The minimum interval between warnings about [`OpenFileLimit`].
const LIMIT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The purpose of a request for a grant. It decides about errors where a lane is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPurpose {
    /// For an open, which fails if the lane is required and gives no grant.
    FirstOpen,
    /// For a file that is already open, or that this open has just created. A lane without a grant isn't an
    /// error here even where a lane is required, because the application would lose what it has begun.
    AlreadyOpen,
}

/// The result of a request for a grant.
pub(crate) enum LaneOpen {
    /// The file with its grant.
    Granted(Box<OpenedFile>),
    /// The server refused. The wire may answer differently.
    Refused(OpenStatus),
    /// There is no lane.
    NoLane,
}

impl LaneManager {
    /// Takes a prefetched file that is being opened for reading, if there is one.
    pub(crate) async fn take_prefetched(&self, user: &User, target: OpenTarget<'_>) -> Option<OpenedFile> {
        if self.mode() == LaneMode::Off {
            return None;
        }
        let (established, user) = (self.live()?, user.lane.as_ref()?);
        let lane = (&established.lane, established.number);
        let taken = self.open_prefetch.take_or_wait(target, user, lane, self.open_timeout(), &self.counters);
        let (opened, number) = taken.await?;
        let handle = Handle::new(&opened.handle)?;
        Some(self.record_open(handle, opened, number, Instant::now()))
    }

    /// Requests a grant for an existing file.
    ///
    /// # Errors
    /// Where a lane is required and `purpose` is [`OpenPurpose::FirstOpen`], everything except a grant, a
    /// refusal that the wire would repeat, and [`OpenStatus::TryWire`].
    pub(crate) async fn open(
        self: &Arc<Self>,
        user: &User,
        target: Target<'_>,
        name: &[u8],
        (read, write): (bool, bool),
        purpose: OpenPurpose,
    ) -> Result<LaneOpen> {
        let object = || String::from_utf8_lossy(name).into_owned();
        let without_lane = |reason: String, result| match self.mode() {
            LaneMode::Required => Err(Error::NoLane { object: object(), reasons: vec![reason] }),
            _ => Ok(result),
        };
        let may_use_wire = purpose == OpenPurpose::AlreadyOpen || self.mode() != LaneMode::Required;
        let (Some(credential), true) = (&user.lane, self.mode() != LaneMode::Off) else {
            return Ok(LaneOpen::NoLane);
        };
        let Some(access) = access(read, write) else { return Ok(LaneOpen::NoLane) };
        let mut rounds = 0;
        loop {
            match self.epoch_for_io().await {
                Ok(_) => {}
                Err(Error::NoLane { .. }) if purpose == OpenPurpose::AlreadyOpen => {
                    return Ok(LaneOpen::NoLane);
                }
                Err(error) => return Err(error.about(object)),
            }
            let reason = match self.live() {
                None if self.mode() != LaneMode::Required => return Ok(LaneOpen::NoLane),
                // It has just ended again.
                None => OpenError::Gone.to_string(),
                Some(established) => {
                    let request = OpenRequest { target, access, credential };
                    match self.send_open(&established, request).await {
                        OpenOutcome::Opened(opened, asked) => {
                            let handle = Handle::new(&opened.handle).ok_or_else(|| Error::Protocol {
                                object: object(),
                                what: "its file handle is longer than a handle can be",
                            })?;
                            let file = self.record_open(handle, *opened, established.number, asked);
                            return Ok(LaneOpen::Granted(Box::new(file)));
                        }
                        OpenOutcome::Refused(status) => return Ok(LaneOpen::Refused(status)),
                        OpenOutcome::LimitReached(limit) if !may_use_wire => {
                            return Err(Error::NoGrant { object: object(), limit });
                        }
                        OpenOutcome::LimitReached(_) => return Ok(LaneOpen::Refused(OpenStatus::TooMany)),
                        // No error even where a lane is required: there is one, and it refers to the wire.
                        // The user may have the file by NFS's rules and not by open(2)'s, or another client's
                        // open conflicts.
                        OpenOutcome::WireOnly(status @ OpenStatus::TryWire) => {
                            return Ok(LaneOpen::Refused(status));
                        }
                        OpenOutcome::WireOnly(status) => {
                            return without_lane(status.to_string(), LaneOpen::Refused(status));
                        }
                        OpenOutcome::Failed(error) => {
                            return without_lane(error.to_string(), LaneOpen::NoLane);
                        }
                        OpenOutcome::LaneEnded(reason) => reason,
                    }
                }
            };
            // Where a lane is required, another one is tried, as often as a call would be retransmitted.
            if self.mode() != LaneMode::Required || !self.policy.hard && rounds >= self.policy.retrans {
                return without_lane(reason, LaneOpen::NoLane);
            }
            tokio::time::sleep(pause(rounds)).await;
            rounds = rounds.saturating_add(1);
        }
    }

    /// Creates and opens a file over the lane. The directory's attributes go to the attribute sink. After
    /// `None` the caller creates the file over the wire; it may exist already, because the lane may have
    /// ended after the server created it.
    ///
    /// # Errors
    /// With a required lane, that there is none, or that it gives no grants. The file wasn't created then.
    pub(crate) async fn create(
        self: &Arc<Self>,
        user: &User,
        directory: &Handle,
        new: NewFile<'_>,
        read: bool,
        write: bool,
    ) -> Result<Option<OpenedFile>> {
        let (Some(credential), Some(access)) = (user.lane.as_ref(), access(read, write)) else {
            return Ok(None);
        };
        let required = self.mode() == LaneMode::Required;
        let object = || String::from_utf8_lossy(new.name).into_owned();
        if required {
            self.epoch_for_io().await.map_err(|error| error.about(object))?;
        }
        let live = self.live().filter(|_| self.mode() != LaneMode::Off);
        let Some(established) = live else { return Ok(None) };
        let request = OpenRequest { target: Target::New(new), access, credential };
        let (opened, asked) = match self.send_open(&established, request).await {
            OpenOutcome::Opened(opened, asked) => (opened, asked),
            // The server returns these before it creates anything.
            OpenOutcome::LimitReached(limit @ OpenFileLimit::Server) if required => {
                return Err(Error::NoGrant { object: object(), limit });
            }
            OpenOutcome::WireOnly(status @ (OpenStatus::Denied | OpenStatus::NoLane)) if required => {
                return Err(Error::NoLane { object: object(), reasons: vec![status.to_string()] });
            }
            _ => return Ok(None),
        };
        let Some(handle) = Handle::new(&opened.handle) else { return Ok(None) };
        if let (Some(sink), Some(changed)) = (&self.attribute_sink, &opened.directory) {
            let before = changed.before.map(|before| PreOpAttributes::Times {
                size: before.size,
                mtime: before.mtime,
                ctime: before.ctime,
            });
            sink.attributes(directory, &AttributeUpdate { before, attributes: changed.after, asked });
        }
        Ok(Some(self.record_open(handle, *opened, established.number, asked)))
    }

    /// Sends an Open. A lane that doesn't reply in time is given up.
    async fn send_open(&self, established: &EstablishedLane, request: OpenRequest<'_>) -> OpenOutcome {
        bump(&self.counters.lane.round_trips);
        let (asked, limit) = (Instant::now(), self.open_timeout());
        match tokio::time::timeout(limit, established.lane.open(request)).await {
            Ok(Ok(opened)) => OpenOutcome::Opened(Box::new(opened), asked),
            Ok(Err(OpenError::Refused(status))) => match status {
                OpenStatus::TooMany => self.limit_reached(OpenFileLimit::Server),
                OpenStatus::Denied | OpenStatus::NoLane | OpenStatus::TryWire => {
                    OpenOutcome::WireOnly(status)
                }
                OpenStatus::Draining => {
                    self.give_up(established.number);
                    OpenOutcome::LaneEnded(status.to_string())
                }
                status => OpenOutcome::Refused(status),
            },
            Ok(Err(OpenError::Gone)) => {
                self.give_up(established.number);
                OpenOutcome::LaneEnded(OpenError::Gone.to_string())
            }
            Ok(Err(OpenError::NoDescriptor)) => self.limit_reached(OpenFileLimit::Client),
            Ok(Err(error)) => OpenOutcome::Failed(error),
            Err(_) => {
                tracing::warn!(timeout = ?limit, "the lane does not answer: it is given up");
                established.lane.end();
                self.give_up(established.number);
                OpenOutcome::LaneEnded(format!("the lane did not answer within {limit:?}"))
            }
        }
    }

    /// Logs that a limit of open files is reached, at most once in [`LIMIT_WARNING_INTERVAL`].
    fn limit_reached(&self, limit: OpenFileLimit) -> OpenOutcome {
        let now = Instant::now();
        let mut last = self.last_limit_warning.lock();
        if last.is_none_or(|at| now.saturating_duration_since(at) >= LIMIT_WARNING_INTERVAL) {
            *last = Some(now);
            let consequence = match self.mode() {
                LaneMode::Required => "opens fail with ENFILE until files are closed",
                _ => "further files are served over the wire until some are closed",
            };
            tracing::warn!(server = %self.rpc.address(), "{}; {consequence}", limit.text());
        }
        OpenOutcome::LimitReached(limit)
    }

    /// Counts an Open over lane `number` and passes its attributes to the attribute sink. They were valid at
    /// some time after `asked`.
    fn record_open(&self, handle: Handle, opened: OpenedGrant, number: u64, asked: Instant) -> OpenedFile {
        bump(&self.counters.lane.opens);
        let attributes = Some(opened.attributes.file);
        if let Some(sink) = &self.attribute_sink {
            sink.attributes(&handle, &AttributeUpdate { before: None, attributes, asked });
        }
        let granted = Some((opened.grant, number, opened.verifier));
        OpenedFile { granted, ..OpenedFile::new(handle, attributes) }
    }
}

fn access(read: bool, write: bool) -> Option<lane::Access> {
    lane::Access::from_number(u32::from(read) | u32::from(write) << 1)
}

/// The outcome of one Open.
enum OpenOutcome {
    /// A grant, and when the Open was sent.
    Opened(Box<OpenedGrant>, Instant),
    /// A refusal that the wire would repeat.
    Refused(OpenStatus),
    /// No further file can be open over the lane.
    LimitReached(OpenFileLimit),
    /// The server gives no grant for this file; the wire may serve it.
    WireOnly(OpenStatus),
    /// The request can't be sent.
    Failed(OpenError),
    /// The lane has ended, with the reason.
    LaneEnded(String),
}
