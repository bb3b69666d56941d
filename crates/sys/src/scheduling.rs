//! The scheduling policy of a thread.

use crate::check;

/// Makes this thread one that preempts no other when it wakes up: SCHED_BATCH of sched(7). Its share of the
/// processor stays the same, and it runs at once if the processor has nothing else to do.
///
/// # Errors
/// `EPERM` for a thread with a realtime or deadline policy that may not give it up.
pub fn preempt_no_other() -> rustix::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is this thread, and the call only reads the parameters.
    let returned = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    check(returned.into()).map(|_| ())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_can_be_told_to_preempt_no_other() {
        std::thread::spawn(|| {
            super::preempt_no_other().expect("an ordinary user may");
            // SAFETY: 0 is this thread.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_BATCH);
        })
        .join()
        .expect("no panic");
    }
}
