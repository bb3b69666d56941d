//! The session's lane: looking for one, losing it, looking again.

/// Whether the session is local, and if not, why not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneReport {
    /// Whether there is a lane now.
    pub local: bool,
    /// The server's instance, 32 hexadecimal digits, while there is a lane.
    pub instance: Option<String>,
    /// Which rendezvous it came up through, in words.
    pub through: Option<String>,
    /// Why there is none: one sentence a candidate or cause, each with something an admin can act on.
    pub reasons: Vec<String>,
}
