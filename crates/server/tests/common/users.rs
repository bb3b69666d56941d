//! Users of this host: work on threads that are ordinary users in all their ids, as processes of theirs would
//! be.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Runs `work` as the user and group `id`, without further groups. What the thread starts (a server's
/// threads, sockets) is that user's, too.
pub fn as_user<T: Send>(id: u32, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        set_thread_groups(&[]).unwrap();
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    std::thread::scope(|scope| {
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
