//! Random sequences of file operations, done alike on a mounted share and on a local directory, and compared:
//! every result, every error, and from time to time the whole tree.

mod operation;
mod side;

use std::path::Path;

pub use operation::{Operation, Random};
pub use side::Side;

/// How often the whole trees are compared.
const LOOK: usize = 250;

/// With a difference as many of those before it are told as weren't errors.
const TOLD: usize = 150;

/// Does `count` operations chosen by `seed` in the empty directories `mounted` and `local`; `meanwhile` is
/// called before each with its number. `exported`: the mounted directory as the server has it. Returns how
/// many of them were no errors.
pub fn compare(
    seed: u64,
    count: usize,
    (mounted, exported, local): (&Path, &Path, &Path),
    mut meanwhile: impl FnMut(usize),
) -> usize {
    let mut random = Random::new(seed);
    let (mut theirs, mut ours) = (Side::new(local), Side::new(mounted));
    let mut log: Vec<String> = Vec::new();
    let mut done = 0;
    for number in 0..count {
        meanwhile(number);
        let operation = Operation::any(&mut random);
        let expected = theirs.run(&operation);
        done += usize::from(expected.is_ok());
        let mut got = ours.run(&operation);
        // An NFS client gives a file that is open and has lost its name another one, and FUSE tells of a
        // close a little later: until then its directory isn't empty.
        let mut patience = 500;
        while expected.is_ok() && matches!(got, Err(rustix::io::Errno::NOTEMPTY)) && patience > 0 {
            if theirs.holds_nameless() {
                theirs.close_nameless();
                ours.close_nameless();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            got = ours.run(&operation);
            patience -= 1;
        }
        if expected.is_ok() || got.is_ok() {
            log.push(format!("{number}: {operation:?} -> {}", side::told(&expected)));
        }
        let tell = || {
            let before = &log[log.len().saturating_sub(TOLD)..];
            format!("seed {seed}, operation {number}; so far:\n  {}", before.join("\n  "))
        };
        assert!(side::alike(&expected, &got), "{}\nthe mount says {}", tell(), side::told(&got));
        if number % LOOK == LOOK - 1 || number == count - 1 {
            let expected = side::tree(local, &theirs.open_files());
            for (which, root) in [("mounted", mounted), ("exported", exported)] {
                let mut difference = side::difference(&expected, &side::tree(root, &[]));
                for _ in 0..300 {
                    if difference.as_ref().is_none_or(|(_, more)| *more) {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    difference = side::difference(&expected, &side::tree(root, &[]));
                }
                let words = difference.map_or_else(String::new, |(words, _)| words);
                assert!(words.is_empty(), "{}\nlocal and {which} trees differ: {words}", tell());
            }
        }
    }
    done
}
