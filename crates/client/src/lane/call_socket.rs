//! The lane's call socket: it is requested when a lane begins, and again when it ends before its lane.
//!
//! Without one, all calls are made over TCP.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rpc::client::CallSocket;

use super::LaneManager;

/// The shortest time between two requests of a lane for a call socket: a server that is short of descriptors
/// closes it to serve others.
const CALL_SOCKET_INTERVAL: Duration = Duration::from_secs(10);

/// The timeout of a request for a call socket.
const CALL_SOCKET_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests another call socket whenever the last one of lane `number` ends before the lane.
async fn renew_call_socket(manager: Weak<LaneManager>, number: u64, mut ended: CallSocketEnd) {
    loop {
        ended.await;
        tokio::time::sleep(CALL_SOCKET_INTERVAL).await;
        let Some(manager) = manager.upgrade() else { return };
        let _no_probe = manager.probing.lock().await;
        if !manager.is_live(number) {
            return;
        }
        match manager.request_call_socket().await {
            Some((_, end)) => ended = end,
            None => return,
        }
    }
}

/// Waits for the end of a call socket.
type CallSocketEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

impl LaneManager {
    /// Opens a call socket of the live lane, if there is one.
    pub(super) async fn open_call_socket(self: &Arc<Self>) {
        if let Some((number, ended)) = self.request_call_socket().await {
            self.runtime.spawn(renew_call_socket(Arc::downgrade(self), number, ended));
        }
    }

    /// Requests a call socket of the live lane and uses it. Returns the lane's number.
    async fn request_call_socket(&self) -> Option<(u64, CallSocketEnd)> {
        let established = self.live()?;
        let opened = tokio::time::timeout(CALL_SOCKET_TIMEOUT, established.lane.call_socket());
        // A lane that doesn't reply is given up by the next Open.
        let opened = opened.await.ok()?.map_err(|error| tracing::debug!(%error, "no call socket")).ok()?;
        let socket = CallSocket::new(opened)
            .map_err(|error| tracing::debug!(%error, "the call socket can't be used"))
            .ok()?;
        let ended = Box::pin(socket.ended());
        self.owner.session.set_call_socket(Some(Arc::new(socket)));
        if self.is_live(established.number) {
            return Some((established.number, ended));
        }
        // The lane ended meanwhile, perhaps before the socket was set.
        self.owner.session.set_call_socket(None);
        None
    }
}
