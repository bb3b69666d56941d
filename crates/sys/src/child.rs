//! The umask of a child process. std has no safe way to set it, and the parent's belongs to all its threads.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes `command` run its program with this umask.
pub fn set_umask(command: &mut Command, mask: u32) -> &mut Command {
    let mask = mask as libc::mode_t;
    let set = move || {
        // SAFETY: umask(2) can't fail, and touches only the process.
        unsafe { libc::umask(mask) };
        Ok(())
    };
    // SAFETY: between fork(2) and execve(2) the closure makes one system call that is async-signal-safe
    // (signal-safety(7)), and neither allocates nor takes a lock.
    unsafe { command.pre_exec(set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_umask_that_was_set() {
        for mask in [0o022, 0o077, 0] {
            let output = set_umask(Command::new("sh").args(["-c", "umask"]), mask).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{mask:04o}\n"));
        }
    }
}
