//! What the server asks of its own process: file mode mask, descriptors, memory.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::status::MemoryStatus;

/// Modes come from clients and must not be masked; descriptors are needed for the open-file caches.
pub(crate) fn prepare() {
    umask(Mode::empty());
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Resident memory, now and at the peak; zeros if /proc doesn't say.
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
