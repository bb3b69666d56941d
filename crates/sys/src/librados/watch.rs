//! A watch of an object: the cluster reports notifications of it.
//!
//! A watch ends when the connection to the cluster is lost for longer than its timeout. It is then
//! established again, under the same context. librados has a pointer to the context until the connection is
//! shut down, whose [`Connected`] keeps it alive.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::functions::{Functions, IoPointer};
use super::operation::{OperationError, RadosOperation};
use super::session::{Connected, RadosSession};

/// What a watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEvent {
    /// The object was notified of.
    Notified,
    /// The watch has ended, and notifications may be lost.
    Broken(Errno),
}

/// What librados's callbacks need.
pub(super) struct WatchContext {
    functions: &'static Functions,
    object: CString,
    /// The I/O context for answers; `None` once the connection is being shut down.
    io: Mutex<Option<IoForAnswers>>,
    on_event: Box<dyn Fn(WatchEvent) + Send + Sync>,
}

struct IoForAnswers(IoPointer);

// SAFETY: librados's functions may be called on any thread.
unsafe impl Send for IoForAnswers {}

impl WatchContext {
    /// Answers no more notifications.
    pub fn end(&self) {
        *self.io.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A watch of an object. Dropping it ends it.
pub struct Watch {
    connected: Arc<Connected>,
    context: Arc<WatchContext>,
    /// librados's handle; 0 while there is none.
    handle: AtomicU64,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("object", &self.context.object).finish_non_exhaustive()
    }
}

impl RadosSession {
    /// Prepares a watch of an object. `on_event` is called on a thread of librados, and must not block or
    /// call librados.
    #[must_use]
    pub fn watch(&self, object: &CStr, on_event: Box<dyn Fn(WatchEvent) + Send + Sync>) -> Watch {
        let connected = Arc::clone(&self.connected);
        let context = Arc::new(WatchContext {
            functions: connected.functions,
            object: object.to_owned(),
            io: Mutex::new(Some(IoForAnswers(connected.io))),
            on_event,
        });
        connected.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&context));
        Watch { connected, context, handle: AtomicU64::new(0) }
    }
}

impl Watch {
    /// Begins to watch, or begins again after the watch has ended. Waits for the cluster for at most
    /// `timeout`. The cluster ends the watch if it doesn't hear of this process for `lost_after` seconds.
    ///
    /// # Errors
    /// [`OperationError`]: `NOENT` if there is no such object.
    pub fn establish(&self, lost_after: u32, timeout: Duration) -> Result<(), OperationError> {
        self.cancel();
        let connected = &self.connected;
        let context = Arc::as_ptr(&self.context).cast_mut().cast::<c_void>();
        let pending = RadosOperation::start(connected, 0, |completion, output| {
            // SAFETY: librados writes the handle to the output until the operation is completed. It has the
            // context until the connection is shut down, which keeps it.
            let started = unsafe {
                (connected.functions.rados_aio_watch2)(
                    connected.io,
                    self.context.object.as_ptr(),
                    completion,
                    &raw mut output.watch,
                    notified,
                    broken,
                    lost_after,
                    context,
                )
            };
            (started, null_mut())
        })?;
        let completed = pending.wait(timeout)?;
        self.handle.store(completed.watch, Ordering::Release);
        Ok(())
    }

    /// The time since the cluster last confirmed the watch.
    ///
    /// # Errors
    /// `NOTCONN` when the watch has ended, or wasn't established.
    pub fn age(&self) -> rustix::io::Result<Duration> {
        let handle = self.handle.load(Ordering::Acquire);
        if handle == 0 {
            return Err(Errno::NOTCONN);
        }
        // SAFETY: the handle is that of a watch of this connection.
        let age = unsafe { (self.connected.functions.rados_watch_check)(self.connected.io, handle) };
        super::check(age).map(|millis| Duration::from_millis(u64::from(millis.unsigned_abs())))
    }

    /// Ends the watch, without waiting for the cluster.
    fn cancel(&self) {
        let handle = self.handle.swap(0, Ordering::AcqRel);
        if handle == 0 {
            return;
        }
        let connected = &self.connected;
        // What can't be ended here ends at the cluster after its timeout.
        let _ = RadosOperation::start(connected, 0, |completion, _| {
            // SAFETY: the handle was that of a watch of this connection, and isn't used again.
            let started =
                unsafe { (connected.functions.rados_aio_unwatch)(connected.io, handle, completion) };
            (started, null_mut())
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// librados's callback for a notification: answers it, so that the notifier doesn't wait.
///
/// # Safety
/// librados calls it with the context of [`Watch::establish`].
unsafe extern "C" fn notified(
    context: *mut c_void,
    notification: u64,
    handle: u64,
    _notifier: u64,
    _data: *mut c_void,
    _length: usize,
) {
    // SAFETY: the connection keeps the context until it is shut down.
    let context = unsafe { &*context.cast_const().cast::<WatchContext>() };
    let io = context.io.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(IoForAnswers(io)) = &*io else { return };
    let object = context.object.as_ptr();
    // SAFETY: the I/O context is valid while it is there, and the call doesn't wait for the cluster.
    unsafe { (context.functions.rados_notify_ack)(*io, object, notification, handle, null(), 0) };
    (context.on_event)(WatchEvent::Notified);
}

/// librados's callback for the end of a watch.
///
/// # Safety
/// librados calls it with the context of [`Watch::establish`].
unsafe extern "C" fn broken(context: *mut c_void, _handle: u64, error: c_int) {
    // SAFETY: the connection keeps the context until it is shut down.
    let context = unsafe { &*context.cast_const().cast::<WatchContext>() };
    (context.on_event)(WatchEvent::Broken(Errno::from_raw_os_error(error.saturating_neg())));
}
