//! What happens to a cluster in one history.

use proptest::collection::vec;
use proptest::prelude::*;

/// The ticks in which faults happen. Then everything is repaired.
pub const FAULTY: u64 = 220;
/// The most nodes.
pub const MAX_NODES: usize = 5;

/// A history, but for the latencies: they follow from the seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    /// Notifications that are lost, of 10.
    pub lost: u64,
    pub faults: Vec<(u64, Fault)>,
}

/// Something that happens. Nodes and clients are numbers modulo their count.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A node's server and mount are killed. They start again after a time.
    Crash { node: usize, down: u64 },
    /// A node's server is stopped, and starts again after a time.
    Stop { node: usize, down: u64 },
    /// A node loses its connections for a time.
    Cut { node: usize, rados: bool, metadata: bool, clients: bool, ticks: u64 },
    /// No node reaches RADOS for a time.
    Outage { ticks: u64 },
    /// A node's requests to RADOS take long for a time.
    Slow { node: usize, ticks: u64 },
    /// A client doesn't run for a time.
    Pause { client: usize, ticks: u64 },
    /// A node's clients are to be taken over by another node.
    Drain { from: usize, to: usize },
    /// A further node joins.
    Add,
}

fn fault() -> impl Strategy<Value = Fault> {
    let node = || 0..MAX_NODES;
    // Restarts at once, after a lease, and after the metadata server has dropped the session.
    let down = || prop_oneof![4 => 1..12_u64, 2 => 12..40_u64, 2 => 40..90_u64];
    prop_oneof![
        6 => (node(), down()).prop_map(|(node, down)| Fault::Crash { node, down }),
        1 => (node(), down()).prop_map(|(node, down)| Fault::Stop { node, down }),
        4 => (node(), any::<[bool; 3]>(), 1..70_u64).prop_map(|(node, [rados, metadata, clients], ticks)| {
            Fault::Cut { node, rados, metadata, clients, ticks }
        }),
        1 => (1..40_u64).prop_map(|ticks| Fault::Outage { ticks }),
        2 => (node(), 1..60_u64).prop_map(|(node, ticks)| Fault::Slow { node, ticks }),
        2 => (0..64_usize, 1..60_u64).prop_map(|(client, ticks)| Fault::Pause { client, ticks }),
        2 => (node(), node()).prop_map(|(from, to)| Fault::Drain { from, to }),
        1 => Just(Fault::Add),
    ]
}

/// Histories.
pub fn plans() -> impl Strategy<Value = Plan> {
    let faults = vec((10..FAULTY, fault()), 1..9);
    (any::<u64>(), 1..=MAX_NODES, 0..8_u64, faults).prop_map(|(seed, nodes, lost, faults)| Plan {
        seed,
        nodes,
        lost,
        faults,
    })
}
