//! The runtime that carries a mount.

/// Threads that carry requests, at most; those that wait for disks come on top.
const WORKERS: usize = 8;

/// A runtime for [`crate::Mount`]: as many workers as there are processors (at most 8), with the mark of a process that
/// writes back other processes' pages where that is permitted (PR_SET_IO_FLUSHER, CAP_SYS_RESOURCE): under memory pressure
/// the kernel then neither waits for this process to write pages of its own mount nor throttles it for what it writes.
///
/// # Errors
/// The operating system's.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("samehost-mount")
        .enable_all()
        .on_thread_start(|| {
            // Not permitted to everybody: then it is as with any other FUSE filesystem.
            let _ = rustix::process::configure_io_flusher_behavior(true);
        })
        .build()
}
