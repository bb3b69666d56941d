//! The runtime of a mount.

/// The most threads for requests. Threads that wait for disks come on top.
const MAX_WORKERS: usize = 8;

/// The runtime for [`crate::Mount`], with a worker for every two processors (at most 8).
///
/// The workers lack CAP_FSETID, and raise it only for what a user does who has it: they write to granted
/// files on behalf of other users, and the kernel writes to passed-through files with this process's
/// credentials. They lack CAP_SYS_RESOURCE for the same reason: with it, all users could exceed their quotas.
///
/// Where that capability permits it, they are first marked with PR_SET_IO_FLUSHER: under memory pressure the
/// kernel then neither waits for this process to write back pages of its own mount, nor throttles its writes.
///
/// There isn't a worker for every processor, because applications and perhaps the server need processors,
/// too, and a request that one worker handles alone costs less than one that passes between several.
///
/// # Errors
/// The operating system's.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(1, |all| all.get() / 2).clamp(1, MAX_WORKERS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("samehost-mount")
        .enable_all()
        .on_thread_start(prepare_thread)
        .build()
}

/// The nice value, relative to the process's, of the threads on a CPU that serve the requests of that CPU.
///
/// The caller sleeps on that CPU until it has its reply. A task that has had more than its fair share of CPU
/// time stays in the run queue while it sleeps (Linux 6.12, DELAY_DEQUEUE), and wakes up where it is. Any
/// other wakes up on an idle CPU if there is one: that takes longer, and each request of a program comes from
/// another CPU than the one before. With a greater weight, the serving thread isn't the one that has had
/// more.
const SERVING_NICE: i32 = -5;

/// Sets what every thread that handles requests has (see [`runtime`]).
pub(crate) fn prepare_thread() {
    // Without the permission the mount behaves as any other FUSE filesystem. A thread that another of these
    // threads has started lacks it, and has inherited the mark.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    user_ids::drop_fsetid();
    user_ids::drop_sys_resource();
}

/// As [`prepare_thread`], for a thread on a CPU that serves the requests of that CPU. It has a greater weight
/// ([`SERVING_NICE`]).
///
/// It doesn't interrupt a caller that goes on after its request, as after close(2), whose RELEASE nobody
/// waits for: the next request comes soon, and both are handled at once. A caller that waits has left the CPU
/// already.
pub(crate) fn prepare_serving_thread() {
    use rustix::process::{getpid, getpriority_process, setpriority_process};
    // An ordinary user may not lower it.
    let _ = getpriority_process(Some(getpid())).and_then(|own| setpriority_process(None, own + SERVING_NICE));
    // A thread with a realtime policy keeps it.
    let _ = sys::scheduling::preempt_no_other();
    prepare_thread();
}

#[cfg(test)]
mod tests {
    use rustix::process::is_io_flusher;
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn threads_for_requests_lack_the_capabilities_that_users_lack_and_are_marked_before() {
        let check = || {
            let sets = capabilities(None).unwrap();
            assert!(!sets.effective.intersects(CapabilitySet::FSETID | CapabilitySet::SYS_RESOURCE));
            // Asking takes the capability, too.
            if sets.permitted.contains(CapabilitySet::SYS_RESOURCE) {
                let effective = sets.effective | CapabilitySet::SYS_RESOURCE;
                set_capabilities(None, CapabilitySets { effective, ..sets }).unwrap();
                assert!(is_io_flusher().unwrap());
                set_capabilities(None, sets).unwrap();
            }
        };
        let runtime = runtime().unwrap();
        runtime.block_on(async {
            tokio::spawn(async move {
                check();
                // On a thread that this one starts.
                tokio::task::spawn_blocking(check).await.unwrap();
            })
            .await
            .unwrap();
        });
    }
}
