//! A server's export over the wire: the calls of each user, repeated while the server delays them.
//!
//! All users of a session share the connections, the transfer sizes and the counters; only the credential of
//! a call is the user's.

use std::sync::Arc;
use std::time::Duration;

use crate::counters::SessionCounters;
use crate::error::{Result, Status};
use crate::nfs3::Nfs3;
use crate::options::Options;
use crate::user::User;

/// The NFS version of sessions. They use only its [`Operations`](crate::operations::Operations).
pub(crate) type Protocol = Nfs3;

/// The first pause after the server has delayed an operation; it doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause after the server has delayed an operation: the kernel client's.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// What all users of a session share of the wire.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) protocol: Protocol,
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
    /// Performs an operation, and repeats it while the server delays it: without a limit in a hard session,
    /// and `retrans` times in a soft one.
    ///
    /// # Errors
    /// The operation's; [`Status::TryLater`] when a soft session gives up.
    pub(crate) async fn perform<'a, T, F>(
        &'a self,
        mut operation: impl FnMut(&'a Protocol, &'a User) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        retry_delayed(&self.wire.options, || operation(&self.wire.protocol, &self.user)).await
    }
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
