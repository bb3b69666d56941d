//! Where a status comes from: every part is asked for its own numbers.

use std::time::{Instant, SystemTime};

use lane::LaneServer;

use super::{ConnectionStatus, ExportStatus, GrantStatus, LaneStatus, MountStatus, Status};
use crate::process;
use crate::service::Service;

/// The parts.
pub(crate) struct Parts<'a> {
    pub instance: &'a [u8],
    pub since: Instant,
    pub notices: Vec<String>,
    pub service: &'a Service,
    pub lane: Option<&'a LaneServer>,
    pub wire: &'a rpc::server::Server,
}

/// A snapshot; not of one moment, as everything goes on meanwhile.
pub(crate) fn gather(parts: &Parts<'_>) -> Status {
    let lanes = parts.lane.map(LaneServer::status).unwrap_or_default();
    let opens = parts.service.counters.open.status();
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: lane::nonce::hex(parts.instance),
        pid: std::process::id(),
        uptime_seconds: parts.since.elapsed().as_secs(),
        listen: parts.wire.local_addrs().iter().map(ToString::to_string).collect(),
        notices: parts.notices.clone(),
        exports: exports(parts.service),
        connections: connections(parts.wire),
        mounts: mounts(parts.service),
        grants: GrantStatus {
            open: lanes.iter().map(|lane| lane.grants).sum(),
            granted: opens.ops - opens.errors.min(opens.ops),
            refused: opens.errors,
        },
        lanes: lanes
            .into_iter()
            .map(|lane| LaneStatus {
                nfs_peer: Some(lane.bound.nfs_peer.to_string()),
                pid: lane.bound.process.pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0),
                uid: lane.bound.process.uid.unwrap_or(u32::MAX),
                grants: lane.grants,
            })
            .collect(),
        counters: parts.service.counters.status(),
        memory: process::memory(),
    }
}

fn exports(service: &Service) -> Vec<ExportStatus> {
    let table = service.gate.table();
    table
        .entries()
        .iter()
        .map(|entry| ExportStatus {
            path: entry.export.path().to_owned(),
            id: entry.id,
            clients: entry.export.clients().iter().map(ToString::to_string).collect(),
            problem: entry.problem(),
        })
        .collect()
}

fn connections(wire: &rpc::server::Server) -> Vec<ConnectionStatus> {
    let now = SystemTime::now();
    wire.connections()
        .into_iter()
        .map(|connection| ConnectionStatus {
            peer: connection.peer.address.to_string(),
            age_seconds: now.duration_since(connection.since).unwrap_or_default().as_secs(),
            calls: connection.calls,
            bytes_in: connection.bytes_in,
            bytes_out: connection.bytes_out,
        })
        .collect()
}

fn mounts(service: &Service) -> Vec<MountStatus> {
    let shown = |(host, path): (String, Vec<u8>)| MountStatus {
        host,
        path: String::from_utf8_lossy(&path).into_owned(),
    };
    service.mounts.list().into_iter().map(shown).collect()
}
