//! Asking a lane for a file, and what to do where it gives none.

use std::time::{Duration, Instant};

use lane::{NewFile, OpenError, OpenRequest, OpenStatus, OpenedGrant, Target};

use super::backoff::pause;
use super::lane_manager::Up;
use crate::ahead::Wanted;
use crate::attribute_sink::{AttributeUpdate, PreOpAttributes};
use crate::counters::bump;
use crate::error::{Error, OpenFileLimit, Result};
use crate::file::Opening;
use crate::options::LaneMode;
use crate::session::Session;
use crate::types::Handle;

/// How often the log says that there is no room for another file.
const LIMIT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// What a grant is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For an open that fails if there must be a lane and none gives a grant.
    Open,
    /// For a file that is open already, or that this open has just made. A lane that is there and has no
    /// grant is no reason to fail then, not even where there must be one: an application would lose what it
    /// has begun.
    Go,
}

/// What a lane said to a request for a file.
pub(crate) enum Answer {
    /// A grant.
    Granted(Box<Opening>),
    /// No; the wire may know better.
    Refused(OpenStatus),
    /// There is no lane, or it is gone.
    None,
}

impl Session {
    /// A file to read, if it was asked for ahead.
    pub(crate) async fn look_ahead(&self, wanted: Wanted<'_>) -> Option<Opening> {
        if self.inner.lane.mode() == LaneMode::Off {
            return None;
        }
        let up = self.inner.lane.live()?;
        self.open_ahead(wanted, &up.lane, up.number).await
    }

    /// Asks the lane for a file. Where a lane is required, anything but a grant, a refusal that the wire
    /// would repeat, and a reference to the wire ([`OpenStatus::TryWire`]) is an error, except as [`Purpose`]
    /// says.
    pub(crate) async fn ask_lane(
        &self,
        target: Target<'_>,
        name: &[u8],
        (read, write): (bool, bool),
        purpose: Purpose,
    ) -> Result<Answer> {
        let manager = &self.inner.lane;
        let shown = || String::from_utf8_lossy(name).into_owned();
        let without = |reason: String, answer| match manager.mode() {
            LaneMode::Required => Err(Error::NoLane { object: shown(), reasons: vec![reason] }),
            _ => Ok(answer),
        };
        let goes_on = purpose == Purpose::Go || manager.mode() != LaneMode::Required;
        let (Some(credential), true) = (&self.user.lane, manager.mode() != LaneMode::Off) else {
            return Ok(Answer::None);
        };
        let Some(access) = access(read, write) else { return Ok(Answer::None) };
        let mut rounds = 0;
        loop {
            match self.lane_for_io().await {
                Ok(_) => {}
                Err(Error::NoLane { .. }) if purpose == Purpose::Go => return Ok(Answer::None),
                Err(error) => return Err(error.about(shown)),
            }
            let why = match manager.live() {
                None if manager.mode() != LaneMode::Required => return Ok(Answer::None),
                // It has just gone again.
                None => OpenError::Gone.to_string(),
                Some(up) => match self.ask_once(&up, OpenRequest { target, access, credential }).await {
                    Asked::Opened(opened, asked) => {
                        let handle = Handle::new(&opened.handle).ok_or_else(|| Error::Protocol {
                            object: shown(),
                            what: "its file handle is longer than a handle can be",
                        })?;
                        return Ok(Answer::Granted(Box::new(self.taken(handle, *opened, up.number, asked))));
                    }
                    Asked::Refused(status) => return Ok(Answer::Refused(status)),
                    Asked::LimitReached(limit) if !goes_on => {
                        return Err(Error::NoGrant { object: shown(), limit });
                    }
                    Asked::LimitReached(_) => return Ok(Answer::Refused(OpenStatus::TooMany)),
                    // Also where there must be a lane: there is one, which says that the wire has the answer.
                    // It is that of a file which the user may have by NFS's rules and not by open(2)'s, or
                    // which somebody else's open is in the way of.
                    Asked::NotHere(status @ OpenStatus::TryWire) => return Ok(Answer::Refused(status)),
                    Asked::NotHere(status) => return without(status.to_string(), Answer::Refused(status)),
                    Asked::Failed(error) => return without(error.to_string(), Answer::None),
                    Asked::Lost(why) => why,
                },
            };
            // The wire knows. Where there must be a lane, the next one: as often as a call would be made
            // again.
            if manager.mode() != LaneMode::Required
                || !manager.policy.hard && rounds >= manager.policy.retrans
            {
                return without(why, Answer::None);
            }
            tokio::time::sleep(pause(rounds)).await;
            rounds = rounds.saturating_add(1);
        }
    }

    /// Asks the lane, if there is one now, to make a file and open it, and tells who observes what has become
    /// of the directory. `None`: ask over the wire, for the file may have been made all the same.
    ///
    /// # Errors
    /// With a required lane, that there is none, or that it gives nothing. Then nothing was made.
    pub(crate) async fn ask_lane_to_make(
        &self,
        directory: &Handle,
        new: NewFile<'_>,
        read: bool,
        write: bool,
    ) -> Result<Option<Opening>> {
        let manager = &self.inner.lane;
        let (Some(credential), Some(access)) = (self.user.lane.as_ref(), access(read, write)) else {
            return Ok(None);
        };
        let required = manager.mode() == LaneMode::Required;
        let object = || String::from_utf8_lossy(new.name).into_owned();
        if required {
            self.lane_for_io().await.map_err(|error| error.about(object))?;
        }
        let Some(up) = manager.live().filter(|_| manager.mode() != LaneMode::Off) else { return Ok(None) };
        let request = OpenRequest { target: Target::New(new), access, credential };
        let (opened, asked) = match self.ask_once(&up, request).await {
            Asked::Opened(opened, asked) => (opened, asked),
            // The server says these before it looks at anything, let alone makes it.
            Asked::LimitReached(limit @ OpenFileLimit::Server) if required => {
                return Err(Error::NoGrant { object: object(), limit });
            }
            Asked::NotHere(status @ (OpenStatus::Denied | OpenStatus::NoLane)) if required => {
                return Err(Error::NoLane { object: object(), reasons: vec![status.to_string()] });
            }
            _ => return Ok(None),
        };
        let Some(handle) = Handle::new(&opened.handle) else { return Ok(None) };
        if let (Some(sink), Some(changed)) = (&manager.attribute_sink, &opened.directory) {
            let before = changed.before.map(|before| PreOpAttributes {
                size: before.size,
                mtime: before.mtime,
                ctime: before.ctime,
            });
            sink.attributes(directory, &AttributeUpdate { before, attributes: changed.after, asked });
        }
        Ok(Some(self.taken(handle, *opened, up.number, asked)))
    }

    /// Asks this lane, which is given up if it doesn't answer.
    async fn ask_once(&self, up: &Up, request: OpenRequest<'_>) -> Asked {
        let manager = &self.inner.lane;
        bump(&self.inner.counters.lane.round_trips);
        let (asked, patience) = (Instant::now(), manager.open_timeout());
        match tokio::time::timeout(patience, up.lane.open(request)).await {
            Ok(Ok(opened)) => Asked::Opened(Box::new(opened), asked),
            Ok(Err(OpenError::Refused(status))) => match status {
                OpenStatus::TooMany => self.limit_reached(OpenFileLimit::Server),
                OpenStatus::Denied | OpenStatus::NoLane | OpenStatus::TryWire => Asked::NotHere(status),
                OpenStatus::Draining => {
                    manager.give_up(up.number);
                    Asked::Lost(status.to_string())
                }
                status => Asked::Refused(status),
            },
            Ok(Err(OpenError::Gone)) => {
                manager.give_up(up.number);
                Asked::Lost(OpenError::Gone.to_string())
            }
            Ok(Err(OpenError::NoDescriptor)) => self.limit_reached(OpenFileLimit::Client),
            Ok(Err(error)) => Asked::Failed(error),
            Err(_) => {
                tracing::warn!(?patience, "the lane does not answer: it is given up");
                up.lane.end();
                manager.give_up(up.number);
                Asked::Lost(format!("the lane did not answer within {patience:?}"))
            }
        }
    }

    /// There's no room for another file; says so in the log, now and then.
    fn limit_reached(&self, limit: OpenFileLimit) -> Asked {
        let manager = &self.inner.lane;
        let now = Instant::now();
        let mut said = manager.last_limit_warning.lock();
        if said.is_none_or(|at| now.saturating_duration_since(at) >= LIMIT_WARNING_INTERVAL) {
            *said = Some(now);
            let then = match manager.mode() {
                LaneMode::Required => "opens fail with ENFILE until files are closed",
                _ => "further files are served over the wire until some are closed",
            };
            tracing::warn!(server = %self.inner.rpc.address(), "{}; {then}", limit.text());
        }
        Asked::LimitReached(limit)
    }

    /// Counts an Open over lane `number` and passes its attributes to the attribute sink. They were true at
    /// some time after `asked`.
    pub(crate) fn taken(&self, handle: Handle, opened: OpenedGrant, number: u64, asked: Instant) -> Opening {
        bump(&self.inner.counters.lane.opens);
        let attributes = Some(opened.attributes.file);
        if let Some(sink) = &self.inner.lane.attribute_sink {
            sink.attributes(&handle, &AttributeUpdate { before: None, attributes, asked });
        }
        let granted = Some((opened.grant, number, opened.verifier));
        Opening { handle, attributes, granted, refused: None }
    }
}

fn access(read: bool, write: bool) -> Option<lane::Access> {
    lane::Access::from_number(u32::from(read) | u32::from(write) << 1)
}

/// What became of one Open.
enum Asked {
    /// A grant, and when it was asked for.
    Opened(Box<OpenedGrant>, Instant),
    /// A refusal that the wire would repeat.
    Refused(OpenStatus),
    /// There's no room for another file.
    LimitReached(OpenFileLimit),
    /// The lane can't; the wire may.
    NotHere(OpenStatus),
    /// So can't this process.
    Failed(OpenError),
    /// There is no such lane any more, and why.
    Lost(String),
}
