//! Requests for the export's own mount, and the changes after which another request may be answered
//! differently.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lane::{GrantWithoutFile, OpenError, OpenRequest, OpenStatus, Target};

use super::lane_manager::LaneManager;
use crate::counters::bump;
use crate::options::LaneMode;
use crate::types::Handle;
use crate::user::User;

/// The interval of requests after a refusal whose reason may cease without the server's recalling grants: a
/// mount below the export is unmounted there, or another client closes a file that it denied to others.
const REQUEST_INTERVAL: Duration = Duration::from_secs(30);

/// A detached clone of the export's mount, and the right to keep it attached.
#[derive(Debug)]
pub struct MountGrant {
    mount: Option<OwnedFd>,
    grant: GrantWithoutFile,
}

impl MountGrant {
    /// The detached mount, once. The kernel dissolves it with its last descriptor unless it is attached.
    #[must_use]
    pub fn take_mount(&mut self) -> Option<OwnedFd> {
        self.mount.take()
    }

    /// Waits until the mount must be detached: the server has recalled its grants, or the lane has ended.
    pub async fn ended(&self) {
        self.grant.ended().await;
    }
}

/// Why there is no mount grant, and when another request is worth while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRefusal {
    /// In words.
    pub reason: String,
    answer: Answer,
}

/// The circumstances of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// There was no lane.
    NoLane,
    /// A server's answer, on the lane with this number in this generation.
    Refused {
        number: u64,
        generation: u64,
        /// Whether another request in the same generation may succeed.
        may_change: bool,
    },
}

impl LaneManager {
    /// Requests the mount that a directory is on.
    pub(crate) async fn mount_grant(
        &self,
        user: &User,
        directory: &Handle,
    ) -> Result<MountGrant, MountRefusal> {
        let (Some(established), Some(credential)) = (self.live(), &user.lane) else {
            return Err(MountRefusal { reason: self.report().reasons.join("; "), answer: Answer::NoLane });
        };
        let generation = established.lane.generation();
        let refusal = |reason: &str, may_change| MountRefusal {
            reason: reason.to_owned(),
            answer: Answer::Refused { number: established.number, generation, may_change },
        };
        bump(&self.counters.lane.round_trips);
        let target = Target::Mount(directory.as_bytes());
        let request = OpenRequest { target, access: lane::Access::ReadWrite, credential };
        match tokio::time::timeout(self.open_timeout(), established.lane.open(request)).await {
            Ok(Ok(opened)) => {
                let (mount, grant) = opened.grant.without_file();
                Ok(MountGrant { mount, grant })
            }
            Ok(Err(OpenError::Refused(OpenStatus::NoTree))) => Err(refusal(
                "the export has no mount_grant, or this process isn't root of the server's host and in its \
                 mount namespace",
                false,
            )),
            Ok(Err(OpenError::Refused(OpenStatus::TreeSquashed))) => {
                Err(refusal("the export squashes root", false))
            }
            Ok(Err(OpenError::Refused(OpenStatus::TryWire))) => Err(refusal(
                "an open of another client denies access to others, or the server's grace period isn't over",
                true,
            )),
            Ok(Err(OpenError::TooOld)) => Err(refusal("the server's version gives no mounts", false)),
            Ok(Err(error)) => Err(refusal(&error.to_string(), error != OpenError::FilesOnly)),
            Err(_) => Err(refusal("the server did not answer the request for its mount in time", true)),
        }
    }

    /// Waits until another request may be answered differently.
    pub(crate) async fn mount_refusal_over(self: &Arc<Self>, refusal: &MountRefusal) {
        let Answer::Refused { number, generation, may_change } = refusal.answer else {
            return self.next_lane().await;
        };
        let Some(established) = self.live().filter(|established| established.number == number) else {
            return;
        };
        let lane = established.lane.clone();
        drop(established);
        if may_change {
            // The end of the interval is an occasion, too.
            let _ = tokio::time::timeout(REQUEST_INTERVAL, lane.changed(generation)).await;
        } else {
            lane.changed(generation).await;
        }
    }

    /// Waits for a lane.
    async fn next_lane(self: &Arc<Self>) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if self.is_established() {
                return;
            }
            let due = if self.mode() == LaneMode::Off { None } else { self.backoff.lock().not_before };
            let pause = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    // A session that was never local.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = pause => self.probe_when_due().await,
            }
        }
    }

    /// Probes, unless another task has meanwhile put the next probe off.
    async fn probe_when_due(self: &Arc<Self>) {
        if self.backoff.lock().not_before.is_some_and(|at| Instant::now() >= at) {
            self.probe_once(true).await;
        }
    }
}
