//! From a URL to a session: connections, root, transfer sizes, lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Inner, Session};
use crate::calling_session::CallingSession;
use crate::error::{Error, Result};
use crate::lane::LaneManager;
use crate::operations::Operations as _;
use crate::options::{LaneMode, MAX_TRANSFER, Options};
use crate::protocol::Protocol;
use crate::types::ExportEntry;
use crate::uncommitted_writes::UncommittedPool;
use crate::url::Url;
use crate::user::User;
use crate::wire::{Wire, WireCaller, retry_delayed};

/// The first pause between two attempts to connect; it doubles.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause, as in mount.nfs(8).
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The transfer size for a server that states none, in bytes: every server supports it.
const DEFAULT_TRANSFER: u32 = 32 << 10;

impl Session {
    /// Connects, mounts, asks for the transfer sizes, and looks for a lane. Of several hosts in the URL the
    /// first that can be reached is used. While none can be it tries again for [`Options::retry`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use samehost_client::{Error, Options, Session, Url};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // The options of the URL take precedence over the others.
    /// let url: Url = "nfs://server/export?soft&timeo=50".parse()?;
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # let url = server.url();
    /// let options = Options::new().retry(Duration::from_secs(10)).nconnect(2);
    /// let session = Session::connect(&url, options.clone()).await?;
    /// let found = session.lookup(&session.root(), b"greeting").await?;
    /// assert_eq!(session.attributes(&found.handle).await?.size, 6);
    ///
    /// let refused = Session::connect(&url.with_path(b"/elsewhere"), options).await;
    /// assert!(matches!(refused, Err(Error::Mount { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Resolve`], [`Error::Rpc`], [`Error::NoAnswer`], [`Error::Mount`]; with
    /// [`LaneMode::Required`], [`Error::NoLane`].
    pub async fn connect(url: &Url, mut options: Options) -> Result<Self> {
        url.apply(&mut options)?;
        let options = Arc::new(options);
        let started = Instant::now();
        let mut pause = MIN_RETRY_PAUSE;
        let hosts: Vec<_> = url.each_host().collect();
        loop {
            let mut last = None;
            for url in &hosts {
                let attempt = Box::pin(Self::connect_once(url, options.clone()));
                let error = match tokio::time::timeout(options.attempt_timeout, attempt).await {
                    Ok(Ok(session)) => return Ok(session),
                    Ok(Err(error)) => error,
                    Err(_) => Error::NoAnswer { object: url.to_string(), after: options.attempt_timeout },
                };
                if !error.is_unreachable() {
                    return Err(error);
                }
                tracing::debug!(%url, %error, "the server can't be reached yet");
                last = Some(error);
            }
            let left = options.retry.unwrap_or_default().saturating_sub(started.elapsed());
            if let Some(error) = last.filter(|_| left.is_zero()) {
                return Err(error);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
    }

    async fn connect_once(url: &Url, options: Arc<Options>) -> Result<Self> {
        let calling = Arc::<CallingSession>::default();
        let (owner, counters) =
            (Arc::new(User::new(options.credential.clone(), &calling)), calling.counters.clone());
        let mounted = Protocol::connect(url, options.clone(), &owner).await?;
        let protocol = mounted.protocol;
        let sizes = retry_delayed(&options, || protocol.fs_info(&owner, &mounted.root))
            .await
            .map_err(|error| error.about(|| url.to_string()))?;
        let wire = Wire {
            protocol,
            owner: owner.clone(),
            rsize: transfer_size(options.rsize, sizes.read_preferred, sizes.read_max),
            wsize: transfer_size(options.wsize, sizes.write_preferred, sizes.write_max),
            counters: counters.clone(),
            options: options.clone(),
        };
        let lane = LaneManager::new(
            &options,
            mounted.rpc.clone(),
            owner.clone(),
            mounted.had_lane,
            mounted.is_durable,
        );
        lane.set_root(&mounted.root);
        let uncommitted = UncommittedPool::new(options.unstable_max);
        wire.protocol.set_written_behind(&uncommitted);
        let inner = Inner {
            lane,
            mounted: mounted.path,
            target: mounted.target,
            root: mounted.root,
            sizes,
            counters,
            uncommitted,
            owner: owner.clone(),
            rpc: mounted.rpc,
            options,
        };
        let caller = WireCaller { wire: Arc::new(wire), user: owner };
        inner.lane.seals.set_wire(&caller.wire);
        let session = Self { inner: Arc::new(inner), caller };
        if session.inner.lane.mode() != LaneMode::Off {
            session.inner.lane.initial_probe().await.map_err(|error| error.about(|| url.to_string()))?;
        }
        Ok(session)
    }

    /// The server's exports. By NFSv3 all of them, and to which hosts (RFC 1813 section 5.2.5,
    /// MOUNTPROC3_EXPORT). By NFSv4 those that this client may use, found from the server's root, without
    /// hosts; an export within another one isn't found.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn exports(&self) -> Result<Vec<ExportEntry>> {
        let wire = &self.caller.wire;
        retry_delayed(&wire.options, || wire.protocol.exports(&self.inner.owner)).await
    }

    /// Tells the server that the export is no longer used (RFC 1813 section 5.2.3, MOUNTPROC3_UMNT). Servers
    /// need not know, so an error is ignored. Open files stay usable; the connections close with the last of
    /// them.
    pub async fn close(self) {
        self.caller.wire.protocol.end(&self.inner.owner).await;
    }
}

/// The wanted transfer size, else the server's preference, within the limits of both sides; above 4 KiB a
/// multiple of 4 KiB.
fn transfer_size(wanted: Option<u32>, preferred: u32, max: u32) -> usize {
    let max = if max == 0 { DEFAULT_TRANSFER } else { max.min(MAX_TRANSFER) };
    let preferred = if preferred == 0 { DEFAULT_TRANSFER } else { preferred };
    let size = wanted.unwrap_or(preferred).clamp(1, max) as usize;
    if size > 4096 { size & !4095 } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_sizes_are_within_both_sides_limits() {
        assert_eq!(transfer_size(None, 0, 0), 32 << 10);
        assert_eq!(transfer_size(None, 1 << 20, 4 << 20), 1 << 20);
        assert_eq!(transfer_size(None, 4 << 20, 8 << 20), 1 << 20);
        assert_eq!(transfer_size(Some(70_000), 1 << 20, 1 << 20), 69_632);
        assert_eq!(transfer_size(Some(512), 1 << 20, 1 << 20), 512);
        assert_eq!(transfer_size(Some(0), 1 << 20, 1 << 20), 1);
        assert_eq!(transfer_size(Some(1 << 20), 65_536, 65_536), 65_536);
    }
}
