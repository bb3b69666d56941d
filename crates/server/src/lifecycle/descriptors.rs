//! The division of the process's file descriptors (`RLIMIT_NOFILE`), computed once at start.
//!
//! Connections, NFSv4 state, lanes and the store's caches all need descriptors. Without fixed shares one part
//! could starve the others: clients that open 10,000 files would leave none to accept a connection. Each part
//! gets a number that it never exceeds, and their sum stays below the limit, so that `EMFILE` doesn't occur
//! in ordinary operation. The [spare](Descriptors::spare) descriptors are for what a call opens while it
//! runs.
//!
//! A pure function of the limit and the demands.

use std::fmt;

/// The demands of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands {
    /// Worker threads.
    pub threads: usize,
    /// Exported directories.
    pub exports: usize,
    /// TCP connections that the configuration allows.
    pub connections: usize,
}

/// How many descriptors each part of the server may use. All are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// `RLIMIT_NOFILE`.
    pub limit: usize,
    /// TCP connections from clients.
    pub connections: usize,
    /// TCP connections to the callback programs of NFSv4.0 clients.
    pub callbacks: usize,
    /// Lanes, [`PER_LANE`] descriptors each. Granted files cost the client's descriptors, not the server's.
    pub lanes: usize,
    /// Connections to the lane's sockets that aren't lanes yet.
    pub pending_lanes: usize,
    /// NFSv4 state: one for each open file and for each lock owner of a file, two for each delegation.
    pub state: usize,
    /// Files in the stores' caches, all stores together: [`PER_NODE`] descriptors each.
    pub nodes: usize,
    /// Descriptors that the stores keep open for reading, writing and listing, all stores together.
    pub data: usize,
    /// The rest: listeners, logs, each export's mount, and what calls open while they run.
    pub spare: usize,
}

/// Descriptors of one lane: its socket, its shared memory, and what its thread has open while it handles a
/// request. Prefetched opens need more while they are sent; without room they aren't opened.
pub(crate) const PER_LANE: usize = 4;
/// Descriptors of one file in a store's cache: its own, for a directory one on the read-only clone of its
/// mount, and half of the two of a file with unstable data, which stays when it leaves the cache (there are
/// at most half as many of these).
pub(crate) const PER_NODE: usize = 3;

/// Listeners, epolls, the control socket, logs, /proc/self/fd, resolver and rpcbind.
const FIXED: usize = 64;
/// What one call has open at most while it runs: files that have left the cache meanwhile, a directory, two
/// steps of a path, both ends of a copy.
const PER_THREAD: usize = 6;
/// The directory, its mount, the read-only clone, the directory at the mount's path, and a few files in use.
const PER_EXPORT: usize = 8;
/// The number of exports that are always accounted for, since a reload may add some.
const EXPORTS: usize = 8;
/// The minimum that the parts share.
const MIN_SHARED: usize = 128;

// The maximum that each part has a use for.

const MAX_CALLBACKS: usize = 1024;
const MAX_LANES: usize = 512;
const MAX_PENDING_LANES: usize = 256;
/// As many lanes as a host normally needs.
const ENOUGH_LANES: usize = 128;
const MAX_STATE: usize = 1 << 18;
const MAX_NODES: usize = 16_384;
const MAX_DATA: usize = 16_384;

/// The limit of open files is too low for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit of open files (RLIMIT_NOFILE) is {limit}, and this server needs {needed} at least: raise it \
     with `ulimit -n`, or LimitNOFILE= in the systemd unit"
)]
pub struct TooFew {
    /// `RLIMIT_NOFILE`.
    pub limit: usize,
    /// The lowest sufficient limit.
    pub needed: usize,
}

impl Descriptors {
    /// Divides `limit` descriptors.
    ///
    /// # Errors
    /// [`TooFew`].
    pub(crate) fn divide(limit: usize, demands: Demands) -> Result<Self, TooFew> {
        let spare = FIXED + PER_THREAD * demands.threads + PER_EXPORT * demands.exports.max(EXPORTS);
        let shared = limit.saturating_sub(spare);
        if shared < MIN_SHARED {
            return Err(TooFew { limit, needed: spare + MIN_SHARED });
        }
        let sixteenth = shared / 16;
        let connections = demands.connections.clamp(1, sixteenth * 4);
        let callbacks = sixteenth.min(MAX_CALLBACKS);
        let lanes = (sixteenth / PER_LANE).min(MAX_LANES);
        let pending_lanes = (sixteenth / 2).min(MAX_PENDING_LANES);
        let nodes = (sixteenth * 4 / PER_NODE).min(MAX_NODES);
        let data = (sixteenth * 2).min(MAX_DATA);
        let taken = connections + callbacks + lanes * PER_LANE + pending_lanes + nodes * PER_NODE + data;
        // At least three sixteenths, and what the other parts leave.
        let state = (shared - taken).min(MAX_STATE);
        Ok(Self { limit, connections, callbacks, lanes, pending_lanes, state, nodes, data, spare })
    }

    /// Files that are being opened for lane clients or are in flight to them. The kernel counts descriptors
    /// in flight separately, against the same limit, by the user whose processes have sent them.
    pub(crate) const fn under_way(&self) -> usize {
        self.limit / 4
    }

    /// A sentence for the administrator if the limit allows less than was configured or than is normal.
    pub(crate) fn note(&self, demands: Demands) -> Option<String> {
        let scarce = self.connections < demands.connections || self.lanes < ENOUGH_LANES;
        scarce.then(|| self.to_string())
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the limit of open files (RLIMIT_NOFILE) is {}: that is enough for {} connections, {} opens and \
             locks of NFSv4 clients, and {} lanes; raise it with `ulimit -n`, or LimitNOFILE= in the systemd \
             unit",
            self.limit, self.connections, self.state, self.lanes
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: Demands = Demands { threads: 16, exports: 1, connections: 4096 };

    fn sum(shares: &Descriptors) -> usize {
        shares.connections
            + shares.callbacks
            + shares.lanes * PER_LANE
            + shares.pending_lanes
            + shares.state
            + shares.nodes * PER_NODE
            + shares.data
            + shares.spare
    }

    #[test]
    fn common_limits_are_divided() {
        let few = Descriptors::divide(64, DEFAULT).unwrap_err();
        assert_eq!(few, TooFew { limit: 64, needed: 352 });
        assert!(few.to_string().contains("RLIMIT_NOFILE) is 64") && few.to_string().contains("ulimit -n"));
        assert!(Descriptors::divide(few.needed, DEFAULT).is_ok());

        // The limit of a login shell.
        let shares = Descriptors::divide(1024, DEFAULT).unwrap();
        assert_eq!((shares.connections, shares.state, shares.lanes), (200, 179, 12));
        assert_eq!((shares.nodes, shares.data), (66, 100));
        let note = shares.note(DEFAULT).unwrap();
        assert!(note.contains("is 1024") && note.contains("200 connections"), "{note}");

        let shares = Descriptors::divide(20_000, DEFAULT).unwrap();
        assert_eq!((shares.connections, shares.lanes, shares.pending_lanes), (4096, 309, 256));
        assert_eq!((shares.state, shares.nodes, shares.data), (5748, 1648, 2472));
        assert_eq!(shares.note(DEFAULT), None);

        // systemd's LimitNOFILE=1048576: more than the server uses.
        let shares = Descriptors::divide(1 << 20, DEFAULT).unwrap();
        assert_eq!((shares.connections, shares.state, shares.nodes), (4096, MAX_STATE, MAX_NODES));
    }

    #[test]
    fn a_reduced_number_of_connections_is_reported() {
        let demands = Demands { connections: 10_000, ..DEFAULT };
        let shares = Descriptors::divide(20_000, demands).unwrap();
        assert!(shares.connections < 10_000 && shares.note(demands).is_some());
        let modest = Demands { connections: 32, ..DEFAULT };
        assert_eq!(Descriptors::divide(20_000, modest).unwrap().connections, 32);
    }

    proptest! {
        #[test]
        fn the_shares_fit_and_none_is_empty(
            limit in 0_usize..2_000_000,
            threads in 1_usize..=256,
            exports in 0_usize..2000,
            connections in 0_usize..100_000,
        ) {
            let demands = Demands { threads, exports, connections };
            match Descriptors::divide(limit, demands) {
                Err(few) => prop_assert!(few.needed > limit),
                Ok(shares) => {
                    prop_assert!(sum(&shares) <= limit, "{:?}", shares);
                    let least = [
                        shares.connections, shares.callbacks, shares.lanes, shares.pending_lanes,
                        shares.state, shares.nodes, shares.data,
                    ];
                    prop_assert!(least.iter().all(|share| *share > 0), "{:?}", shares);
                }
            }
        }
    }
}
