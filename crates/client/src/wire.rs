//! A server's export over the wire: the calls of each user, repeated while the server delays them.
//!
//! All users of a session share the connections, the transfer sizes and the counters; only the credential of
//! a call is the user's.
//!
//! The server accepts sealed handles only ([`crate::handle`]). A handle that this client made gets its seal
//! here, before the first call that needs it: a LOOKUP in the directory where the file was found returns the
//! same file's sealed handle, or shows that another file has the name now.

use std::sync::Arc;
use std::time::Duration;

use crate::counters::SessionCounters;
use crate::error::{Error, Result, Status};
use crate::operations::Operations as _;
use crate::options::Options;
use crate::protocol::Protocol;
use crate::types::Handle;
use crate::user::User;

/// The first pause after the server has delayed an operation; it doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause after the server has delayed an operation. A grace period or a recall, which may end at
/// any time, isn't overshot by much.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What all users of a session share of the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) protocol: Protocol,
    /// The user who mounted, as whom handles are sealed: a session's users share its handles.
    pub(crate) owner: Arc<User>,
    pub(crate) options: Arc<Options>,
    pub(crate) counters: Arc<SessionCounters>,
    /// The size of a READ in bytes.
    pub(crate) rsize: usize,
    /// The size of a WRITE in bytes.
    pub(crate) wsize: usize,
}

/// One user's calls over the wire.
#[derive(Debug, Clone)]
pub(crate) struct WireCaller {
    pub(crate) wire: Arc<Wire>,
    pub(crate) user: Arc<User>,
}

impl WireCaller {
    /// Performs an operation on `files`, and repeats it while the server delays it: without a limit in a hard
    /// session, and `retrans` times in a soft one.
    ///
    /// # Errors
    /// The operation's; [`Status::TryLater`] when a soft session gives up; those of [`WireCaller::seal`].
    pub(crate) async fn perform<'a, T, F>(
        &'a self,
        files: &[&Handle],
        mut operation: impl FnMut(&'a Protocol, &'a User) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.seal(files).await?;
        retry_delayed(&self.wire.options, || operation(&self.wire.protocol, &self.user)).await
    }

    /// Gets the seals of handles that this client made.
    ///
    /// # Errors
    /// [`Status::Stale`] if a file no longer has the name by which it was found, or is too deep to be found
    /// again; the LOOKUP's.
    pub(crate) async fn seal(&self, files: &[&Handle]) -> Result<()> {
        for file in files {
            if !file.is_sealed() {
                Box::pin(self.look_up_again(file)).await?;
            }
        }
        Ok(())
    }

    /// Seals a handle, and those of the directories above it first.
    async fn look_up_again(&self, file: &Handle) -> Result<()> {
        let mut unsealed = file.unsealed().ok_or_else(|| stale(&[]))?;
        while let Some((file, (directory, name))) = unsealed.pop() {
            let look_up = || self.wire.protocol.lookup(&self.wire.owner, &directory, &name);
            match retry_delayed(&self.wire.options, look_up).await {
                Ok(found) if file.seal(&found.handle) => {}
                Ok(_) => return Err(stale(&name)),
                Err(error) if error.status() == Some(Status::NoEntry) => return Err(stale(&name)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The error for a file that can't be found again.
fn stale(name: &[u8]) -> Error {
    Error::Status { object: String::from_utf8_lossy(name).into_owned(), status: Status::Stale }
}

/// As [`WireCaller::perform`], for a session that isn't complete.
pub(crate) async fn retry_delayed<T, F>(options: &Options, mut operation: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delay = MIN_PAUSE;
    let mut retries = 0;
    loop {
        let result = operation().await;
        let is_delayed = matches!(&result, Err(error) if error.status() == Some(Status::TryLater));
        if !is_delayed || !options.hard && retries >= options.retrans {
            return result;
        }
        retries += 1;
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_PAUSE);
    }
}
