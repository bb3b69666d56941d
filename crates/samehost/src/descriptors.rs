//! The limit of open files (RLIMIT_NOFILE), and the table of descriptors.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failure;

/// The least limit for a client: the runtime, connections, a lane, and some files.
const MIN_LIMIT: u64 = 64;
/// The most descriptors that a client uses besides those of copied files.
const RESERVED_DESCRIPTORS: u64 = 48;
/// Descriptors of a file that is being copied, one for each end.
const DESCRIPTORS_PER_COPY: u64 = 2;

/// The descriptors for which the table gets room at once: those of a large tree. That takes 512 KiB.
const TABLE: u64 = 1 << 16;

/// Raises the limit as far as permitted, because each file over the lane is an open file. Makes room in the
/// process's table of descriptors.
///
/// Before there is a second thread, room costs nothing. Later the kernel doubles the table when an open needs
/// it, and that open waits for all processors (synchronize_rcu): 6 to 18 ms were seen.
pub fn prepare() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If this fails, the limit stays as it is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(TABLE);
    let last = limit.min(TABLE).saturating_sub(1);
    // Without room the table grows later.
    drop(fcntl_dupfd_cloexec(std::io::stderr(), i32::try_from(last).unwrap_or(0)));
}

/// Checks the limit for a client.
///
/// # Errors
/// It is too low.
pub fn check() -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < MIN_LIMIT => Err(Failure::new(
            "the limit of open files (RLIMIT_NOFILE)",
            format!("it is {limit}, and a client needs {MIN_LIMIT} at least"),
        )
        .next("raise it with `ulimit -n`, or LimitNOFILE= in the systemd unit")),
        _ => Ok(()),
    }
}

/// The number of files that can be copied at the same time under the limit, at most `wanted`.
pub fn copies(wanted: usize) -> usize {
    fit(getrlimit(Resource::Nofile).current, wanted)
}

fn fit(limit: Option<u64>, wanted: usize) -> usize {
    let max = limit.map(|limit| limit.saturating_sub(RESERVED_DESCRIPTORS) / DESCRIPTORS_PER_COPY);
    max.and_then(|max| usize::try_from(max).ok()).map_or(wanted, |max| wanted.min(max.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_reduces_concurrent_copies() {
        assert_eq!(fit(None, 16), 16);
        assert_eq!(fit(Some(1024), 16), 16);
        assert_eq!(fit(Some(MIN_LIMIT), 16), 8);
        assert_eq!(fit(Some(MIN_LIMIT), 2), 2);
        assert_eq!(fit(Some(8), 16), 1);
    }
}
