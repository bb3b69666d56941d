//! Writes that don't wait for the server.

use std::sync::Arc;

use bytes::Bytes;
use io::Stability;

use super::{File, Inner};
use crate::error::Result;
use crate::types::SetAttributes;
use crate::uncommitted_writes::{Accepted, BehindWrite};

impl File {
    /// Writes all of `data` at `offset`, without waiting until the server has it. It is sent soon, together
    /// with writes that continue it. Reads, attributes and every other operation of this session on the file
    /// behave as if it were written; [`File::commit`] makes it durable.
    ///
    /// A failure is reported by the next `write_behind`, [`File::commit`], [`File::sync`] or [`File::close`]
    /// of this and every other open that has written to the file, and by each [`File::flush`] before. The
    /// file's writes then wait for the server until a commit succeeds.
    ///
    /// The data is part of what [`Options::unstable_max`](crate::Options::unstable_max) bounds, and a file
    /// with a quarter of that on its way makes its writers wait. While the session has a lane the write waits
    /// for the server: another open may reach the file without this client.
    ///
    /// # Errors
    /// [`Error::EarlierWrite`](crate::Error::EarlierWrite), and then this data isn't written; those of
    /// [`File::write_at`] if it waits.
    pub async fn write_behind(&self, data: Bytes, offset: u64) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        if let Some(result) = inner.lane_write(&data, offset) {
            return result;
        }
        if Box::pin(inner.write_behind(&data, offset)).await? {
            return Ok(());
        }
        Box::pin(self.write_stable(data, offset, Stability::Unstable)).await
    }

    /// Accepts the times of a new file, to be set later. Returns false if they must be set now.
    pub(crate) fn set_later(&self, set: SetAttributes) -> bool {
        let inner = &self.inner;
        inner.may_write_behind() && inner.uncommitted().set_later(&inner.session.caller, set, inner.clone())
    }

    /// Waits until the server has answered all writes to the file that were made by [`File::write_behind`]
    /// before this call.
    pub async fn settle(&self) {
        self.inner.settle_writes().await;
    }
}

impl Inner {
    /// Whether a write may be sent later.
    fn may_write_behind(&self) -> bool {
        !self.session.inner.lane.is_established() && !self.has_grant()
    }

    /// Accepts a write to be sent later. Returns false if it has to wait for the server.
    async fn write_behind(self: &Arc<Self>, data: &Bytes, offset: u64) -> Result<bool> {
        let is_possible = !data.is_empty() && offset.checked_add(data.len() as u64).is_some();
        if !is_possible || !self.may_write_behind() || self.ensure_grant().await? {
            return Ok(false);
        }
        self.open_on_wire().await?;
        let uncommitted = self.uncommitted();
        uncommitted.report_failure(&self.known_failures)?;
        if uncommitted.must_write_through() {
            return Ok(false);
        }
        let Some(reservation) = uncommitted.reserve(data.len()).await? else { return Ok(false) };
        let mut write = BehindWrite {
            offset,
            data: data.clone(),
            writer: self.session.caller.clone(),
            open: self.clone(),
            reservation,
        };
        loop {
            {
                let _writer = uncommitted.writers.read().await;
                // With the lock: a lane that came meanwhile finds this write, or is found.
                if !self.may_write_behind() {
                    return Ok(false);
                }
                match uncommitted.accept(write) {
                    Accepted::Yes => return Ok(true),
                    Accepted::NotYet(refused) => write = refused,
                }
            }
            uncommitted.accept_later(&write).await;
        }
    }
}
