//! Whom a thread acts as.

/// A user as the filesystem sees one, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Gives this thread the process's own filesystem ids back.
pub fn act_as_process() {
    unimplemented!()
}
