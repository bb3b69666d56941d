//! The lane's road where the server reads or writes the file in another mode than through the page cache:
//! seldom taken, and so apart from the one that is taken often.

use std::io as stdio;
use std::sync::Arc;

use io::{Alignment, Stability};

use super::Inner;
use super::granted::FileGrant;
use crate::error::Result;
use crate::lane::{LaneOpen, OpenPurpose};

impl Inner {
    /// Reads where the caller waits for the disk.
    #[cold]
    pub(super) fn read_by_mode(
        &self,
        granted: &FileGrant,
        buffer: &mut [u8],
        offset: u64,
    ) -> stdio::Result<usize> {
        let (files, mode) = (self.files(granted), granted.way.modes.read);
        io::read(files, mode, buffer, offset, self.fallbacks())
    }

    /// Writes, where the caller waits for the disk.
    #[cold]
    pub(super) fn write_by_mode(
        &self,
        granted: &FileGrant,
        data: &[u8],
        offset: u64,
    ) -> stdio::Result<usize> {
        let (files, mode) = (self.files(granted), granted.way.modes.write);
        io::write(files, mode, data, offset, Stability::Unstable, self.fallbacks())
    }

    /// Reads by a mode that waits for the disk, where nobody else has to wait for it.
    pub(super) async fn fetch_elsewhere(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        let (file, len) = (self.clone(), buffer.len());
        let fetch = move || {
            let granted = file.granted.read()?;
            let slot = granted.thread_slot();
            let Some(flight) = granted.grant.try_get_at(slot) else { return file.leave(granted) };
            let (files, mode) = (file.files(&granted), granted.way.modes.read);
            let fetched = io::fetch(files, mode, offset, len, file.fallbacks());
            drop(flight);
            if let Ok(payload) = &fetched {
                file.did_read(slot, offset, payload.len());
            }
            Some(fetched)
        };
        let fetched = match tokio::task::spawn_blocking(fetch).await {
            Ok(fetched) => fetched?,
            Err(error) => return Some(Err(self.local(stdio::Error::other(error)))),
        };
        Some(match fetched {
            Ok(payload) => {
                buffer[..payload.len()].copy_from_slice(&payload);
                Ok(payload.len())
            }
            Err(error) => Err(self.failed_read(offset, error)),
        })
    }

    fn files<'a>(&'a self, granted: &'a FileGrant) -> io::Files<'a> {
        granted.way.files(&granted.grant, self.handle.as_bytes())
    }

    fn fallbacks(&self) -> &io::IoFallbacks {
        &self.session.inner.lane.fallbacks
    }

    /// Whether [`Inner::take_direct`] has something to do.
    pub(super) fn wants_direct(&self) -> bool {
        self.granted.read().is_some_and(|granted| granted.way.wants_direct(self.read, self.write))
    }

    /// Gets what direct I/O takes; without it all goes through the page cache.
    pub(super) async fn take_direct(self: &Arc<Self>) {
        let Some(granted) = self.granted.load() else { return };
        let Some(alignment) = Alignment::of(&granted.grant) else {
            self.fallbacks().alignment_unknown();
            return;
        };
        let target = lane::Target::Handle(self.handle.as_bytes());
        let (manager, user) = (&self.session.inner.lane, &self.session.caller.user);
        let access = (self.read, self.write);
        match manager.open(user, target, &self.name, access, OpenPurpose::AlreadyOpen).await {
            Ok(LaneOpen::Granted(opening)) => {
                if let Some((grant, lane, _)) = opening.granted
                    && lane == granted.lane
                {
                    granted.way.take_direct(grant, alignment);
                }
            }
            Ok(LaneOpen::Refused(_) | LaneOpen::NoLane) => {}
            Err(error) => tracing::debug!(file = %self.shown(), %error, "no second grant for direct I/O"),
        }
    }
}
