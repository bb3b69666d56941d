//! Users of this host: threads with all ids of an ordinary user, like a process of that user.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Runs `work` as the user and group `id`, without further groups. Threads and sockets made by it (such as a
/// server's) belong to that user, too.
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
