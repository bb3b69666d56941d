//! Collection of a status from the parts of a running server.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use control::LATENCY_BOUNDS;
use exports::Squash;
use lane::{LaneInfo, LaneServer, OpenStatus};
use store::Mounts;

use super::counters::{CountedOperation, ExportSlots, SeriesTotals};
use super::lane_reason::LaneReasons;
use super::{
    ConnectionStatus, ExportCalls, ExportStatus, GrantStatus, IoStatus, LaneStatus, MountStatus, Status,
    TimeBucket, WireStatus,
};
use crate::authorization::tree_rules::TreeRefusal;
use crate::export_table::io_modes::{Direction, effective};
use crate::export_table::{ExportEntry, ExportTable, mounts};
use crate::lifecycle::process;
use crate::service::Service;

/// The parts that a status is collected from.
pub(crate) struct StatusSources<'a> {
    pub instance: &'a [u8],
    pub since: Instant,
    pub notices: Vec<String>,
    pub service: &'a Service,
    pub lane: Option<&'a LaneServer>,
    pub lane_wanted: bool,
    pub wire: &'a rpc::server::Server,
    pub slots: &'a ExportSlots,
}

/// A snapshot. The parts are read one after the other while the server runs.
pub(crate) fn gather(parts: &StatusSources<'_>) -> Status {
    let lanes = parts.lane.map(LaneServer::status).unwrap_or_default();
    let why = LaneReasons::new(parts.service, parts.lane, parts.lane_wanted, &lanes);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: lane::nonce::hex(parts.instance),
        pid: std::process::id(),
        uptime_seconds: parts.since.elapsed().as_secs(),
        listen: parts.wire.local_addrs().iter().map(ToString::to_string).collect(),
        notices: parts.notices.clone(),
        io: server_io(parts.service),
        exports: exports(parts.service),
        connections: connections(parts.wire, why),
        wire: wire(parts.wire),
        mounts: mounted(parts.service),
        grants: grants(parts.service, &lanes),
        lanes: lanes
            .into_iter()
            .map(|lane| LaneStatus {
                nfs_peer: Some(lane.bound.nfs_peer.to_string()),
                pid: lane.bound.process.pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0),
                uid: lane.bound.process.uid.unwrap_or(u32::MAX),
                age_seconds: age(lane.since),
                grants: lane.grants,
            })
            .collect(),
        counters: parts.service.counters.status(),
        export_calls: export_calls(parts),
        memory: process::memory(),
    }
}

/// Grants over all `lanes`.
pub(super) fn grants(service: &Service, lanes: &[LaneInfo]) -> GrantStatus {
    let opens = service.counters.operation(CountedOperation::LaneOpen);
    let trees = service.counters.operation(CountedOperation::LaneTree);
    // A client that creates a file asks for it first.
    let (not_found, refused) =
        service.counters.failures_of(CountedOperation::LaneOpen, OpenStatus::NotFound as u32);
    GrantStatus {
        open: lanes.iter().map(|lane| lane.grants).sum(),
        granted: opens.ops - opens.errors,
        refused,
        not_found,
        trees: service.trees.count() as u64,
        trees_granted: trees.ops - trees.errors,
        trees_refused: trees.errors,
    }
}

fn export_calls(parts: &StatusSources<'_>) -> Vec<ExportCalls> {
    let names = parts.slots.names();
    let mut sums: BTreeMap<_, (SeriesTotals, u64, u64)> = BTreeMap::new();
    for (key, totals) in parts.service.counters.series() {
        let (sum, read, written) = sums.entry((key.export, key.data_path)).or_default();
        match key.operation {
            // It is counted as an open, too.
            CountedOperation::LaneTree => continue,
            operation if operation.is_write() => *written += totals.bytes,
            _ => *read += totals.bytes,
        }
        *sum += totals;
    }
    let bounds = LATENCY_BOUNDS.into_iter().map(Some).chain([None]);
    sums.into_iter()
        .map(|((export, data_path), (sum, bytes_read, bytes_written))| ExportCalls {
            export: names.get(export.index()).cloned().unwrap_or_default(),
            data_path: data_path.name().to_owned(),
            calls: sum.calls,
            errors: sum.errors,
            bytes_read,
            bytes_written,
            times: bounds
                .clone()
                .zip(sum.times.counts)
                .map(|(at_most_ns, calls)| TimeBucket { at_most_ns, calls })
                .collect(),
        })
        .collect()
}

fn exports(service: &Service) -> Vec<ExportStatus> {
    let table = service.access.table();
    let mounts = mounts::read();
    table
        .entries()
        .iter()
        .map(|entry| ExportStatus {
            path: entry.export.path().to_owned(),
            id: entry.id,
            clients: entry.export.clients().iter().map(ToString::to_string).collect(),
            problem: entry.problem(),
            io: export_io(service, entry),
            io_notes: entry.open_store().map(|store| words(&store.io_notes())).unwrap_or_default(),
            tree: tree(service, &table, entry, mounts.as_ref().ok()),
            copied_writes: entry.open_store().map_or(0, |store| store.copied_writes()),
            crossed: entry.crossed.is_some(),
        })
        .collect()
}

fn words(notes: &[&str]) -> Vec<String> {
    notes.iter().map(|note| (*note).to_owned()).collect()
}

fn server_io(service: &Service) -> IoStatus {
    let mode = |direction| service.access.io.get(direction).unwrap_or_default().to_string();
    IoStatus { read: mode(Direction::Read), write: mode(Direction::Write) }
}

fn export_io(service: &Service, entry: &ExportEntry) -> IoStatus {
    let modes = |direction| {
        let mut modes: Vec<String> = Vec::new();
        for client in entry.export.clients() {
            let mode = effective(&service.access.io, &entry.io, &client.options, direction).to_string();
            if !modes.contains(&mode) {
                modes.push(mode);
            }
        }
        modes.join(", ")
    };
    IoStatus { read: modes(Direction::Read), write: modes(Direction::Write) }
}

/// Whether an export's directory is given to clients of this host.
fn tree(service: &Service, table: &ExportTable, entry: &ExportEntry, mounts: Option<&Mounts>) -> String {
    if !service.trees.offered() {
        return TreeRefusal::FilesOnly.to_string();
    }
    let Some(mounts) = mounts else { return "what is mounted in it is not known".to_owned() };
    if let Err(refusal) = table.check_tree(entry, mounts) {
        return refusal.to_string();
    }
    let mut words: Vec<String> = Vec::new();
    for client in entry.export.clients() {
        let word = match TreeRefusal::of_options(&client.options) {
            Some(refusal) => refusal.to_string(),
            None if client.options.mount_grant && client.options.squash == Squash::None => {
                "given, to root of this host as a mount".to_owned()
            }
            None => "given".to_owned(),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(", ")
}

fn connections(wire: &rpc::server::Server, mut why: LaneReasons<'_>) -> Vec<ConnectionStatus> {
    wire.connections()
        .into_iter()
        .map(|connection| {
            let (local, reason) = match connection.admitted {
                true => why.of(connection.peer.address),
                false => (false, "nothing is exported to this client".to_owned()),
            };
            ConnectionStatus {
                peer: connection.peer.address.to_string(),
                admitted: connection.admitted,
                local,
                reason,
                age_seconds: age(connection.since),
                calls: connection.calls,
                bytes_in: connection.bytes_in,
                bytes_out: connection.bytes_out,
            }
        })
        .collect()
}

fn wire(wire: &rpc::server::Server) -> WireStatus {
    let totals = wire.totals();
    WireStatus {
        accepted: totals.connections,
        refused: totals.refused,
        displaced: totals.displaced,
        broken: totals.broken,
        denied: totals.denied,
    }
}

/// Whole seconds since a time of the system's clock; 0 if the clock was set back.
fn age(since: SystemTime) -> u64 {
    since.elapsed().unwrap_or_default().as_secs()
}

fn mounted(service: &Service) -> Vec<MountStatus> {
    let shown = |(host, path): (String, Vec<u8>)| MountStatus {
        host,
        path: String::from_utf8_lossy(&path).into_owned(),
    };
    service.mounts.list().into_iter().map(shown).collect()
}
