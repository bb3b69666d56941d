//! Copying trees to, from and between servers.
//!
//! The [`walk`] goes through the source's directories, makes them at the goal, and queues everything else. A
//! bounded number of [`job`]s copy files and links; [`destinations`] keeps two from writing one file. When
//! both are done, the directories get their final modes, from the deepest up, because a directory without
//! write permission can't be filled. [`location`] abstracts from local and remote ends; [`progress`] draws
//! the progress bar.
//!
//! Names come from a peer that may be hostile: below the goal that the user named no symbolic link is
//! followed, and names with a '/' and the name '..' are refused.

mod destinations;
mod job;
mod local;
mod location;
mod progress;
mod remote;
mod walk;

pub use progress::Progress;
pub use walk::{Copied, copy_all};

/// The options of a copy.
#[derive(Clone, Copy, Debug)]
pub struct TreeCopyOptions {
    /// Copy directories with their contents, and symbolic links as links.
    pub recursive: bool,
    /// Preserve time stamps, owner, group and set-id bits.
    pub preserve: bool,
    /// Commit each file that is written to a server.
    pub commit: bool,
    /// Files open at the same time.
    pub files: usize,
}
