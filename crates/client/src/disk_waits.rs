//! Threads on which calls that may wait for a disk run.
//!
//! Such a call blocks its thread for an unknown time. By default it runs on one of tokio's threads for
//! blocking calls, and its future continues on the runtime: two further threads wake up for it. A program
//! that polls futures on its own threads can save that. It polls a future by [`poll_nonblocking`] on a thread
//! that mustn't wait, and if the result is [`Polled::WaitsForDisk`], by [`poll_blocking`] on one that may.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use tokio::task::JoinError;

/// What calls that may wait for a disk do on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They run on tokio's threads for blocking calls.
    Elsewhere,
    /// Their future asks to be polled on another thread.
    Asked { waits: bool },
    /// They run here.
    Here,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Elsewhere) };
}

/// Sets the mode of this thread while it exists.
struct ModeGuard(Mode);

impl ModeGuard {
    fn set(mode: Mode) -> Self {
        Self(MODE.replace(mode))
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        MODE.set(self.0);
    }
}

/// The result of [`poll_nonblocking`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled<T> {
    /// The future's result.
    Ready(T),
    /// The future waits for something else than a disk.
    Pending,
    /// The future has come to a call that may wait for a disk, and hasn't made it. Poll it by
    /// [`poll_blocking`], or on a runtime, where the call runs as if [`poll_nonblocking`] didn't exist.
    WaitsForDisk,
}

/// Polls a future of this crate once, and makes no call that may wait for a disk.
///
/// Nothing is woken when the future can continue: unless the result is [`Polled::Ready`], poll it again, by
/// [`poll_blocking`] or on a runtime. Within a tokio runtime.
pub fn poll_nonblocking<F: Future + Unpin>(future: &mut F) -> Polled<F::Output> {
    let _mode = ModeGuard::set(Mode::Asked { waits: false });
    match poll_once(future) {
        Some(result) => Polled::Ready(result),
        None if MODE.get() == (Mode::Asked { waits: true }) => Polled::WaitsForDisk,
        None => Polled::Pending,
    }
}

/// Polls a future of this crate once, and makes its calls that may wait for a disk on this thread.
///
/// `None`: the future waits for something else. Nothing is woken when it can continue. Within a tokio
/// runtime, but not on one of its own threads.
pub fn poll_blocking<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let _mode = ModeGuard::set(Mode::Here);
    poll_once(future)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Makes a call that may wait for a disk: on this thread if its future is polled by [`poll_blocking`],
/// otherwise on one of tokio's for blocking calls.
///
/// # Errors
/// The runtime is shutting down, or the call has panicked.
pub async fn run<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> Result<R, JoinError> {
    if may_wait_here().await { Ok(call()) } else { tokio::task::spawn_blocking(call).await }
}

/// Whether this thread may wait for a disk.
pub(crate) fn is_blocking_thread() -> bool {
    MODE.get() == Mode::Here
}

/// Whether a call may wait for a disk on the thread that polls this, which may not be the thread that polled
/// it first.
pub(crate) async fn may_wait_here() -> bool {
    poll_fn(|context| match MODE.get() {
        Mode::Here => Poll::Ready(true),
        Mode::Elsewhere => Poll::Ready(false),
        Mode::Asked { .. } => {
            MODE.set(Mode::Asked { waits: true });
            // Futures that poll only what was woken must poll this again.
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Where a call runs, as the number of the thread.
    async fn call() -> thread::ThreadId {
        run(|| thread::current().id()).await.expect("the call doesn't panic")
    }

    #[tokio::test]
    async fn a_call_runs_on_another_thread_by_default() {
        assert_ne!(call().await, thread::current().id());
    }

    #[tokio::test]
    async fn a_call_runs_on_the_thread_that_may_wait() {
        let mut future = Box::pin(async { (call().await, call().await) });
        assert_eq!(poll_nonblocking(&mut future), Polled::WaitsForDisk);
        assert_eq!(poll_nonblocking(&mut future), Polled::WaitsForDisk);
        let runtime = tokio::runtime::Handle::current();
        let blocking = thread::spawn(move || {
            let _context = runtime.enter();
            (poll_blocking(&mut future), thread::current().id())
        });
        let (result, id) = blocking.join().expect("it doesn't panic");
        assert_eq!(result, Some((id, id)));
        // Neither thread keeps its mode.
        assert_ne!(call().await, thread::current().id());
    }

    #[tokio::test]
    async fn a_runtime_may_continue_what_no_thread_may_wait_for() {
        let mut future = Box::pin(call());
        assert_eq!(poll_nonblocking(&mut future), Polled::WaitsForDisk);
        assert_ne!(tokio::spawn(future).await.expect("it doesn't panic"), thread::current().id());
    }

    #[tokio::test]
    async fn futures_that_wait_for_something_else_are_pending() {
        let mut future = Box::pin(tokio::task::yield_now());
        assert_eq!(poll_nonblocking(&mut future), Polled::Pending);
        assert_eq!(poll_nonblocking(&mut future), Polled::Ready(()));
    }

    #[tokio::test]
    async fn futures_that_poll_only_what_was_woken_continue() {
        let mut futures: futures_util::stream::FuturesUnordered<_> = (0..3).map(|_| call()).collect();
        let mut next = Box::pin(async move {
            use futures_util::StreamExt as _;
            let mut ids = Vec::new();
            while let Some(id) = futures.next().await {
                ids.push(id);
            }
            ids
        });
        assert_eq!(poll_nonblocking(&mut next), Polled::WaitsForDisk);
        let id = thread::current().id();
        assert_eq!(poll_blocking(&mut next), Some(vec![id; 3]));
    }
}
