//! From the wire to the lane in the middle of a stream: when to ask for a grant, and what must be durable
//! before it is used.

use std::io as stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use io::Stability;
use rustix::io::Errno;

use super::Inner;
use super::granted::FileGrant;
use super::kept::UncommittedWrites;
use crate::counters::{add, bump};
use crate::error::Result;
use crate::lane::{LaneOpen, OpenPurpose};
use crate::options::LaneMode;

impl Inner {
    /// Finds out whether there is a road by lane now: true if there is. Asks once on every occasion.
    pub(super) async fn acquire_grant(self: &Arc<Self>) -> Result<bool> {
        let session = &self.session;
        let manager = &session.inner.lane;
        if manager.mode() == LaneMode::Off {
            return Ok(false);
        }
        let Some(occasion) = manager.epoch_for_io().await.map_err(|error| error.about(|| self.shown()))?
        else {
            return Ok(false);
        };
        // A lane that must be there is asked with every call, unless it has said that the file goes by the
        // wire for now.
        let insists = manager.mode() == LaneMode::Required && self.refused.lock().is_none();
        if self.asked.load(SeqCst) == occasion && !insists {
            return Ok(self.has_grant());
        }
        // Asking is rare, and its future large.
        Box::pin(self.request_grant(occasion, insists)).await
    }

    async fn request_grant(self: &Arc<Self>, occasion: u64, insists: bool) -> Result<bool> {
        let (session, manager) = (&self.session, &self.session.inner.lane);
        let _one = self.asking.lock().await;
        if self.has_grant() {
            return Ok(true);
        }
        if self.asked.swap(occasion, SeqCst) == occasion && !insists {
            return Ok(false);
        }
        let target = lane::Target::Handle(self.handle.as_bytes());
        let (user, access) = (&session.caller.user, (self.read, self.write));
        match manager.open(user, target, &self.name, access, OpenPurpose::AlreadyOpen).await? {
            LaneOpen::Granted(opening) => match opening.granted {
                Some((grant, lane, verifier)) => {
                    *self.refused.lock() = None;
                    let medium = manager.nowait_support(opening.attributes.as_ref());
                    let taken = self.change_to(FileGrant::new(grant, lane, verifier, medium)).await?;
                    if taken && self.wants_direct() {
                        Box::pin(self.take_direct()).await;
                    }
                    Ok(taken)
                }
                None => Ok(false),
            },
            LaneOpen::Refused(status) => {
                *self.refused.lock() = Some(status);
                Ok(false)
            }
            LaneOpen::NoLane => Ok(false),
        }
    }

    /// Takes a grant into use. First everything that was written over the wire becomes durable: from here on
    /// nothing is kept, and nothing old can be written over something newer.
    pub(super) async fn change_to(self: &Arc<Self>, granted: FileGrant) -> Result<bool> {
        let granted = Arc::new(granted);
        let kept = self.kept_by_any();
        let _writers = match &kept {
            Some(kept) => Some(kept.writers.write().await),
            None => None,
        };
        if let Some(kept) = &kept
            && !self.settle(kept, &granted).await?
        {
            // The wire keeps what it has, and tries for itself.
            return Ok(false);
        }
        self.granted.set(Some(granted));
        bump(&self.session.inner.counters.data_path_changes);
        self.enlist();
        Ok(true)
    }

    /// Makes durable what was written over the wire; false if that didn't work. Nobody else writes over the
    /// wire meanwhile.
    async fn settle(self: &Arc<Self>, kept: &UncommittedWrites, granted: &Arc<FileGrant>) -> Result<bool> {
        let again = match kept.forgotten(granted.verifier).await {
            Ok(again) => again,
            Err(error) => {
                tracing::debug!(file = %self.shown(), %error, "staying on the wire");
                return Ok(false);
            }
        };
        if !again.is_empty() {
            let resent: u64 = again.iter().map(|(_, data)| data.len() as u64).sum();
            let file = granted.clone();
            let settle = move || -> stdio::Result<()> {
                let _flight = file.grant.try_get().ok_or(Errno::NXIO)?;
                for (offset, data) in &again {
                    let mut done = 0;
                    while done < data.len() {
                        done += io::write_at(&file.grant, &data[done..], offset + done as u64)?;
                    }
                }
                io::sync(&file.grant, Stability::FileSync)
            };
            match tokio::task::spawn_blocking(settle).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(file = %self.shown(), %error, "staying on the wire");
                    return Ok(false);
                }
                Err(error) => return Err(self.local(stdio::Error::other(error))),
            }
            add(&self.session.inner.counters.bytes_resent, resent);
        }
        kept.clear();
        Ok(true)
    }
}
