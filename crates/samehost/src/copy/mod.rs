//! Copying trees to, from and between servers.
//!
//! A copy is a walk and a crowd. The [`walk`] goes through the source's directories, makes them at the goal,
//! and queues everything else; [`job`]s, a bounded number at a time, carry files and links over. When both
//! are done the directories get their final modes, from the deepest up, because a directory without write
//! permission can't be filled. [`side`] hides which end is local and which is a server, [`progress`] draws.
//!
//! Names come from a peer that may be hostile: below the goal that the user named nothing follows a symbolic
//! link, and no name with a '/' or '..' is taken.

mod job;
mod local;
mod progress;
mod remote;
mod side;
mod walk;

pub use progress::Progress;
pub use walk::{Copied, copy_all};

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Directories with everything in them, and symbolic links as links.
    pub recursive: bool,
    /// Time stamps, owner, group and set-id bits, too.
    pub preserve: bool,
    /// Make what is written to a server durable before it counts as copied.
    pub commit: bool,
    /// Files open at the same time.
    pub files: usize,
}
