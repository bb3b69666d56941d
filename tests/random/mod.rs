//! Random sequences of file operations, run on a mounted share and on a local directory. Every result and
//! every error is compared, and periodically the whole tree.

mod directory;
mod operation;

use std::path::Path;

pub use directory::Directory;
pub use operation::{Operation, Random};

/// After so many operations the whole trees are compared.
const TREE_COMPARISON_INTERVAL: usize = 250;

/// The message of a difference lists at most so many of the successful operations before it.
const MAX_LISTED: usize = 150;

/// How often a comparison is repeated, with pauses of 10 ms, until the mount has caught up.
const MAX_ATTEMPTS: usize = 6_000;

/// Runs `count` operations chosen by `seed` in the empty directories `mounted` and `local`; calls `before`
/// before each with its number. `exported` is the mounted directory on the server. Returns the number of
/// operations that succeeded.
pub fn compare(
    seed: u64,
    count: usize,
    (mounted, exported, local): (&Path, &Path, &Path),
    mut before: impl FnMut(usize),
) -> usize {
    let mut random = Random::new(seed);
    let (mut theirs, mut ours) = (Directory::new(local), Directory::new(mounted));
    let mut log: Vec<String> = Vec::new();
    let mut done = 0;
    for number in 0..count {
        before(number);
        let operation = Operation::any(&mut random);
        let expected = theirs.run(&operation);
        done += usize::from(expected.is_ok());
        let mut got = ours.run(&operation);
        // An NFS client renames a file that is unlinked while it is open, and FUSE's RELEASE is asynchronous:
        // until then its directory isn't empty.
        let mut attempts = 0;
        while expected.is_ok() && matches!(got, Err(rustix::io::Errno::NOTEMPTY)) && attempts < MAX_ATTEMPTS {
            if theirs.has_unlinked_open_files() {
                theirs.close_unlinked_files();
                ours.close_unlinked_files();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            got = ours.run(&operation);
            attempts += 1;
        }
        if expected.is_ok() || got.is_ok() {
            log.push(format!("{number}: {operation:?} -> {}", directory::describe(&expected)));
        }
        let history = || {
            let last = &log[log.len().saturating_sub(MAX_LISTED)..];
            format!("seed {seed}, operation {number}; so far:\n  {}", last.join("\n  "))
        };
        assert!(expected == got, "{}\nthe mount returns {}", history(), directory::describe(&got));
        if number % TREE_COMPARISON_INTERVAL == TREE_COMPARISON_INTERVAL - 1 || number == count - 1 {
            let expected = directory::tree(local, &theirs.open_files());
            for (which, root) in [("mounted", mounted), ("exported", exported)] {
                let mut difference = directory::difference(&expected, &directory::tree(root, &[]));
                for _ in 0..MAX_ATTEMPTS {
                    if difference.as_ref().is_none_or(|(_, more)| *more) {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    difference = directory::difference(&expected, &directory::tree(root, &[]));
                }
                let words = difference.map_or_else(String::new, |(words, _)| words);
                assert!(words.is_empty(), "{}\nlocal and {which} trees differ: {words}", history());
            }
        }
    }
    done
}
