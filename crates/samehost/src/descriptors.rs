//! The limit of open files (RLIMIT_NOFILE) of a client's process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failure;

/// The least that a client works with: the runtime, connections, a lane, and the some thirty files that it
/// opens ahead of a reader.
const LEAST: u64 = 64;
/// What a client has open besides the files that it copies, at most.
const BESIDES_COPIES: u64 = 48;
/// What a file that is being copied takes: both of its ends.
const PER_COPY: u64 = 2;

/// Raises the limit to the most that this process may have. Each file over the lane is an open file.
///
/// # Errors
/// When that is too little for a client.
pub fn raise() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < LEAST => Err(Failure::new(
            "the limit of open files (RLIMIT_NOFILE)",
            format!("it is {limit}, and a client needs {LEAST} at least"),
        )
        .next("raise it with `ulimit -n`, or LimitNOFILE= in the systemd unit")),
        _ => Ok(()),
    }
}

/// How many files can be copied at the same time under the limit, `wanted` at most.
pub fn copies(wanted: usize) -> usize {
    fit(getrlimit(Resource::Nofile).current, wanted)
}

fn fit(limit: Option<u64>, wanted: usize) -> usize {
    let most = limit.map(|limit| limit.saturating_sub(BESIDES_COPIES) / PER_COPY);
    most.and_then(|most| usize::try_from(most).ok()).map_or(wanted, |most| wanted.min(most.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_files_are_copied_at_once_where_descriptors_are_few() {
        assert_eq!(fit(None, 16), 16);
        assert_eq!(fit(Some(1024), 16), 16);
        assert_eq!(fit(Some(LEAST), 16), 8);
        assert_eq!(fit(Some(LEAST), 2), 2);
        assert_eq!(fit(Some(8), 16), 1);
    }
}
