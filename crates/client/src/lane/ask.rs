//! Asking a lane for a file, and what to do where it gives none.

use std::time::Instant;

use lane::{New, OpenError, OpenRequest, Opened, Status, Target};

use super::keeper::Up;
use super::pace::pause;
use crate::ahead::Wanted;
use crate::counters::bump;
use crate::error::{Error, Result};
use crate::file::Opening;
use crate::observer::{Before, Seen};
use crate::options::LaneMode;
use crate::session::Session;
use crate::types::Handle;

/// What a lane said to a request for a file.
pub(crate) enum Answer {
    /// A grant.
    Granted(Box<Opening>),
    /// No; the wire may know better.
    Refused(Status),
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

    /// Asks the lane for a file. Where a lane is required, anything but a grant or a refusal that the wire would repeat
    /// is an error.
    pub(crate) async fn ask_lane(
        &self,
        target: Target<'_>,
        name: &[u8],
        read: bool,
        write: bool,
    ) -> Result<Answer> {
        let keeper = &self.inner.lane;
        let shown = || String::from_utf8_lossy(name).into_owned();
        let without = |reason: String, answer| match keeper.mode() {
            LaneMode::Required => Err(Error::NoLane { object: shown(), reasons: vec![reason] }),
            _ => Ok(answer),
        };
        let (Some(credential), true) = (&self.user.lane, keeper.mode() != LaneMode::Off) else {
            return Ok(Answer::None);
        };
        let Some(access) = access(read, write) else { return Ok(Answer::None) };
        let mut rounds = 0;
        loop {
            self.lane_for_io().await.map_err(|error| error.about(shown))?;
            let why = match keeper.live() {
                None if keeper.mode() != LaneMode::Required => return Ok(Answer::None),
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
                    Asked::NotHere(status) => return without(status.to_string(), Answer::Refused(status)),
                    Asked::Failed(error) => return without(error.to_string(), Answer::None),
                    Asked::Lost(why) => why,
                },
            };
            // The wire knows. Where there must be a lane, the next one: as often as a call would be made again.
            if keeper.mode() != LaneMode::Required || !keeper.policy.hard && rounds >= keeper.policy.retrans {
                return without(why, Answer::None);
            }
            tokio::time::sleep(pause(rounds)).await;
            rounds = rounds.saturating_add(1);
        }
    }

    /// Asks the lane, if there is one now, to make a file and open it, and tells who observes what has become of the directory. `None`: ask
    /// over the wire, for the file may have been made all the same.
    pub(crate) async fn ask_lane_to_make(
        &self,
        directory: &Handle,
        new: New<'_>,
        read: bool,
        write: bool,
    ) -> Option<Opening> {
        let keeper = &self.inner.lane;
        let credential = self.user.lane.as_ref()?;
        let access = access(read, write)?;
        let up = keeper.live().filter(|_| keeper.mode() != LaneMode::Off)?;
        let request = OpenRequest { target: Target::New(new), access, credential };
        let Asked::Opened(opened, asked) = self.ask_once(&up, request).await else { return None };
        let handle = Handle::new(&opened.handle)?;
        if let (Some(observer), Some(changed)) = (&keeper.observer, &opened.directory) {
            let before = changed.before.map(|before| Before {
                size: before.size,
                mtime: before.mtime,
                ctime: before.ctime,
            });
            observer.seen(directory, &Seen { before, attributes: changed.after, asked });
        }
        Some(self.taken(handle, *opened, up.number, asked))
    }

    /// Asks this lane, which is given up if it doesn't answer.
    async fn ask_once(&self, up: &Up, request: OpenRequest<'_>) -> Asked {
        let keeper = &self.inner.lane;
        bump(&self.inner.live.lane.round_trips);
        let (asked, patience) = (Instant::now(), keeper.patience());
        match tokio::time::timeout(patience, up.lane.open(request)).await {
            Ok(Ok(opened)) => Asked::Opened(Box::new(opened), asked),
            Ok(Err(OpenError::Refused(status))) => match status {
                Status::Denied | Status::NoLane | Status::TooMany | Status::TryWire => Asked::NotHere(status),
                Status::Draining => {
                    keeper.give_up(up.number);
                    Asked::Lost(status.to_string())
                }
                status => Asked::Refused(status),
            },
            Ok(Err(OpenError::Gone)) => {
                keeper.give_up(up.number);
                Asked::Lost(OpenError::Gone.to_string())
            }
            Ok(Err(error)) => Asked::Failed(error),
            Err(_) => {
                tracing::warn!(?patience, "the lane does not answer: it is given up");
                up.lane.end();
                keeper.give_up(up.number);
                Asked::Lost(format!("the lane did not answer within {patience:?}"))
            }
        }
    }

    /// What lane `number` gave is counted, and told to who observes; it was true at some time after `asked`.
    pub(crate) fn taken(&self, handle: Handle, opened: Opened, number: u64, asked: Instant) -> Opening {
        bump(&self.inner.live.lane.opens);
        let attributes = Some(opened.about.attributes);
        if let Some(observer) = &self.inner.lane.observer {
            observer.seen(&handle, &Seen { before: None, attributes, asked });
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
    Opened(Box<Opened>, Instant),
    /// A refusal that the wire would repeat.
    Refused(Status),
    /// The lane can't; the wire may.
    NotHere(Status),
    /// So can't this process.
    Failed(OpenError),
    /// There is no such lane any more, and why.
    Lost(String),
}
