//! Running code in another network namespace.
//!
//! setns(2) moves one thread, and there is no dependable way back. So the code runs on a thread of its own,
//! which ends afterwards.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `work` on a new thread that has entered the network namespace `namespace` (an open
/// `/proc/PID/ns/net`), waits for it, and returns what it returned. Sockets made inside stay in that
/// namespace wherever they are used.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` over the namespace and over our own, `EINVAL` when it isn't a network
/// namespace; `Other` when `work` panicked.
pub fn in_network_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("in-netns".into())
            .spawn_scoped(scope, move || -> io::Result<T> {
                move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
                Ok(work())
            })?
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the work inside the namespace panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn entering_our_own_namespace_works() {
        let own = std::fs::File::open("/proc/self/ns/net").expect("proc");
        match in_network_namespace(own.as_fd(), || 42) {
            Ok(answer) => assert_eq!(answer, 42),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        let other = std::fs::File::open("/proc/self/ns/uts").expect("proc");
        in_network_namespace(other.as_fd(), || 42).expect_err("not a network namespace");
    }
}
