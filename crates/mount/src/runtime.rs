//! The runtime that carries a mount.

use crate::privileges;

/// Threads that carry requests, at most; those that wait for disks come on top.
const WORKERS: usize = 8;

/// The runtime for [`crate::Mount`], whose threads lack CAP_FSETID: a worker for every two processors (at
/// most 8), with the mark of a process that writes back other processes' pages where that is permitted
/// (PR_SET_IO_FLUSHER, CAP_SYS_RESOURCE): under memory pressure the kernel then neither waits for this
/// process to write pages of its own mount nor throttles it for what it writes.
///
/// Not one for every processor: applications want to run, too, and so may the server; and what one worker
/// does from beginning to end costs less than what several hand to each other.
///
/// # Errors
/// The operating system's.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get() / 2).clamp(1, WORKERS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("samehost-mount")
        .enable_all()
        .on_thread_start(|| {
            // Not permitted to everybody: then it is as with any other FUSE filesystem.
            let _ = rustix::process::configure_io_flusher_behavior(true);
            privileges::drop_fsetid();
        })
        .build()
}
