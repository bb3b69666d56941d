//! Settings and measurements of the server's own process: umask, descriptors, signals, memory.

use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use signal_hook::consts::SIGXFSZ;

use crate::status::MemoryStatus;

/// Clears the umask, since modes come from clients, and raises the limit of open files. Returns the limit.
pub(crate) fn prepare() -> usize {
    umask(Mode::empty());
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    make_room_for_descriptors();
    survive_file_size_limit();
    number(getrlimit(Resource::Nofile).current)
}

/// The limit of open files that [`prepare`] would set.
pub(crate) fn most_descriptors() -> usize {
    number(getrlimit(Resource::Nofile).maximum)
}

fn number(limit: Option<u64>) -> usize {
    limit.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED))
}

/// Stands for "unlimited": the kernel's own limit (`/proc/sys/fs/nr_open`), unless it was raised.
const UNLIMITED: usize = 1 << 20;

/// The number of descriptors for which the kernel's table is grown in advance (8 bytes each).
const ROOM: u64 = 1 << 16;

/// Makes the kernel grow the descriptor table now. It grows by doubling, and in a process with threads each
/// step waits for an RCU grace period: 10 ms and more, several times, in the first seconds of a server whose
/// caches fill.
fn make_room_for_descriptors() {
    let room = getrlimit(Resource::Nofile).current.map_or(ROOM, |limit| limit.min(ROOM));
    let highest = i32::try_from(room).unwrap_or(1).saturating_sub(1);
    let made = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .and_then(|any| rustix::io::fcntl_dupfd_cloexec(&any, highest));
    if let Err(error) = made {
        tracing::debug!(%error, "the descriptor table grows when it must");
    }
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with EFBIG, which is reported to the
/// client, instead of ending the process. The signal gets a handler that does nothing, since an ignored
/// signal would be inherited by child processes.
fn survive_file_size_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
            tracing::warn!(%error, "a write beyond the limit of file sizes will end the server");
        }
    });
}

/// Resident memory, now and at the peak; zeros without /proc.
pub(crate) fn memory() -> MemoryStatus {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    MemoryStatus { resident: kibibytes("VmRSS") << 10, peak: kibibytes("VmHWM") << 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_some() {
        let memory = memory();
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
    }
}
