//! The numbers of two samples, as rates: pure functions.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use client::DataPathCounters;
use control::path_text;
use mount::process::MountStatus;
use serde::Serialize;
use server::Status;
use server::status::{ExportCalls, TimeBucket};

use super::Sample;

/// What happened between two samples, and what is true at the second one. `--json` writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    /// The seconds between the samples; 0 if there is only one, and then all rates are 0.
    pub seconds: f64,
    /// The data paths.
    pub data_paths: Vec<DataPathRow>,
    /// The connections of the servers' clients.
    pub clients: Vec<ClientRow>,
    /// The mounts.
    pub mounts: Vec<MountRow>,
    /// The servers' exports.
    pub exports: Vec<ExportRow>,
    /// Clients and mounts of this host without a lane.
    pub missing_lanes: Vec<MissingLane>,
    /// The number of servers.
    pub servers: usize,
    /// Processes that didn't answer, in words.
    pub silent: Vec<String>,
}

/// One data path of all servers, or of all mounts. What isn't counted anywhere is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataPathRow {
    /// Its name.
    pub name: &'static str,
    /// Operations a second: calls, opens, reads and writes.
    pub operations: f64,
    /// Those that failed, a second.
    pub errors: Option<f64>,
    /// Bytes read a second.
    pub bytes_read: Option<f64>,
    /// Bytes written a second.
    pub bytes_written: Option<f64>,
    /// The time that half of the calls took at most.
    pub median: Option<Quantile>,
    /// The time that 99 of 100 calls took at most.
    pub p99: Option<Quantile>,
}

/// A quantile of the calls' times, as far as their buckets tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// At most so many nanoseconds.
    AtMostNs(u64),
    /// More than so many nanoseconds.
    MoreThanNs(u64),
}

/// One connection of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientRow {
    /// Its address and port.
    pub peer: String,
    /// Whether it has a lane.
    pub local: bool,
    /// Calls a second.
    pub calls: f64,
    /// Bytes received from it a second.
    pub bytes_in: f64,
    /// Bytes sent to it a second.
    pub bytes_out: f64,
    /// Open grants, if it has a lane.
    pub grants: Option<u64>,
    /// Its process, if it has a lane and the process is visible.
    pub pid: Option<i32>,
    /// How it got its lane, or why it has none.
    pub reason: String,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MountRow {
    /// The mountpoint.
    #[serde(with = "control::path_text")]
    pub mountpoint: PathBuf,
    /// What is mounted.
    pub source: String,
    /// The data path of newly opened files.
    pub data_path: String,
    /// Requests of the kernel a second.
    pub requests: f64,
    /// Bytes that its process read a second, over lane and wire.
    pub bytes_read: f64,
    /// Bytes that its process wrote a second, over lane and wire.
    pub bytes_written: f64,
    /// Opens a second that the kernel took over.
    pub opens_passed_through: f64,
    /// Requests without a reply.
    pub under_way: u64,
    /// Why its data path isn't a faster one.
    pub reasons: Vec<String>,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExportRow {
    /// Its directory.
    #[serde(with = "control::path_text")]
    pub path: PathBuf,
    /// Calls a second, over all data paths.
    pub calls: f64,
    /// Bytes read a second, through the server.
    pub bytes_read: f64,
    /// Bytes written a second, through the server.
    pub bytes_written: f64,
    /// The time that 99 of 100 calls took at most.
    pub p99: Option<Quantile>,
    /// Its clients with their options.
    pub clients: Vec<String>,
    /// Whether local clients get the directory.
    pub tree: String,
    /// Why it isn't served, if it isn't.
    pub problem: Option<String>,
}

/// A client or a mount of this host that could have a lane.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingLane {
    /// The client's address, or the mountpoint.
    pub who: String,
    /// Why there is none.
    pub reason: String,
}

/// The columns by which clients can be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrder {
    /// Calls a second.
    Calls,
    /// Bytes received a second.
    Received,
    /// Bytes sent a second.
    Sent,
    /// Open grants.
    Grants,
    /// The address.
    Client,
}

impl ClientOrder {
    /// All of them, in the order of the columns.
    pub const ALL: [Self; 5] = [Self::Client, Self::Calls, Self::Received, Self::Sent, Self::Grants];

    /// Sorts rows: numbers with the largest first, addresses with the smallest.
    pub fn sort(self, rows: &mut [ClientRow]) {
        let by = |number: fn(&ClientRow) -> f64| {
            move |a: &ClientRow, b: &ClientRow| number(b).total_cmp(&number(a)).then(a.peer.cmp(&b.peer))
        };
        match self {
            Self::Client => rows.sort_by(|a, b| a.peer.cmp(&b.peer)),
            Self::Calls => rows.sort_by(by(|row| row.calls)),
            Self::Received => rows.sort_by(by(|row| row.bytes_in)),
            Self::Sent => rows.sort_by(by(|row| row.bytes_out)),
            Self::Grants => rows.sort_by(|a, b| b.grants.cmp(&a.grants).then(a.peer.cmp(&b.peer))),
        }
    }
}

/// What was done between two samples.
#[derive(Debug, Clone, Default)]
struct Total {
    operations: u64,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Calls by the time that they took; empty where it isn't measured.
    times: Vec<TimeBucket>,
}

impl Total {
    /// What was counted since `before`.
    fn since(before: &Self, after: Self) -> Self {
        let earlier = |bound| before.times.iter().find(|bucket| bucket.at_most_ns == bound);
        let times = after.times.into_iter().map(|bucket| TimeBucket {
            calls: bucket.calls.saturating_sub(earlier(bucket.at_most_ns).map_or(0, |bucket| bucket.calls)),
            ..bucket
        });
        Self {
            operations: after.operations.saturating_sub(before.operations),
            errors: after.errors.saturating_sub(before.errors),
            bytes_read: after.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: after.bytes_written.saturating_sub(before.bytes_written),
            times: times.collect(),
        }
    }

    fn add(&mut self, more: Self) {
        self.operations += more.operations;
        self.errors += more.errors;
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        if self.times.is_empty() {
            self.times = more.times;
        } else {
            // All servers of one version have the same bounds.
            self.times.iter_mut().zip(more.times).for_each(|(sum, bucket)| sum.calls += bucket.calls);
        }
    }

    /// The calls of a server since an earlier status, those that `which` selects.
    fn of_server(old: Option<&Status>, server: &Status, which: impl Fn(&ExportCalls) -> bool) -> Self {
        let mut total = Self::default();
        // What a process did before the first sample of it isn't a rate.
        let Some(old) = old else { return total };
        for calls in server.export_calls.iter().filter(|calls| which(calls)) {
            let is_same = |old: &&ExportCalls| old.export == calls.export && old.data_path == calls.data_path;
            let before = old.export_calls.iter().find(is_same).map(Self::of_calls).unwrap_or_default();
            total.add(Self::since(&before, Self::of_calls(calls)));
        }
        total
    }

    fn of_calls(counted: &ExportCalls) -> Self {
        Self {
            operations: counted.calls,
            errors: counted.errors,
            bytes_read: counted.bytes_read,
            bytes_written: counted.bytes_written,
            times: counted.times.clone(),
        }
    }

    fn of_io(counted: &DataPathCounters) -> Self {
        Self {
            operations: counted.opens + counted.reads + counted.writes + counted.commits,
            bytes_read: counted.bytes_read,
            bytes_written: counted.bytes_written,
            ..Self::default()
        }
    }

    /// The time that `percent` of 100 calls took at most; `None` without calls.
    fn quantile(&self, percent: u64) -> Option<Quantile> {
        let calls: u64 = self.times.iter().map(|bucket| bucket.calls).sum();
        if calls == 0 {
            return None;
        }
        let rank = (calls * percent).div_ceil(100).max(1);
        let (mut seen, mut bound) = (0, 0);
        for bucket in &self.times {
            seen += bucket.calls;
            match bucket.at_most_ns {
                Some(at_most) if seen >= rank => return Some(Quantile::AtMostNs(at_most)),
                Some(at_most) => bound = at_most,
                None => {}
            }
        }
        Some(Quantile::MoreThanNs(bound))
    }
}

impl View {
    /// The view of `after`, with the rates since `before`. `is_own` tells whether an address is this host's.
    pub fn new(before: Option<&Sample>, after: &Sample, is_own: impl Fn(IpAddr) -> bool) -> Self {
        let seconds =
            before.map_or(0.0, |before| after.at.saturating_duration_since(before.at).as_secs_f64());
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let pairs = Pairs { before, after };
        let mut view = Self {
            seconds,
            data_paths: data_paths(&pairs, rate),
            servers: after.servers.len(),
            silent: after.silent.clone(),
            ..Self::default()
        };
        for (old, server) in pairs.servers() {
            view.clients.extend(clients(old, server, rate));
            view.exports.extend(server.exports.iter().map(|export| {
                let name = path_text::text(&export.path);
                let total = Total::of_server(old, server, |calls| calls.export == name);
                ExportRow {
                    path: export.path.clone(),
                    calls: rate(total.operations),
                    bytes_read: rate(total.bytes_read),
                    bytes_written: rate(total.bytes_written),
                    p99: total.quantile(99),
                    clients: export.clients.clone(),
                    tree: export.tree.clone(),
                    problem: export.problem.clone(),
                }
            }));
        }
        view.mounts = pairs.mounts().map(|(old, mount)| mount_row(old, mount, rate)).collect();
        view.missing_lanes = missing_lanes(after, is_own);
        ClientOrder::Calls.sort(&mut view.clients);
        view
    }
}

/// The processes of two samples. A process without an earlier status has `None`.
struct Pairs<'a> {
    before: Option<&'a Sample>,
    after: &'a Sample,
}

impl<'a> Pairs<'a> {
    fn servers(&self) -> impl Iterator<Item = (Option<&'a Status>, &'a Status)> {
        let before = self.before;
        self.after.servers.iter().map(move |server| {
            let mut old = before.into_iter().flat_map(|before| &before.servers);
            (old.find(|old| old.instance == server.instance), server)
        })
    }

    fn mounts(&self) -> impl Iterator<Item = (Option<&'a MountStatus>, &'a MountStatus)> {
        let before = self.before;
        self.after.mounts.iter().map(move |mount| {
            let mut old = before.into_iter().flat_map(|before| &before.mounts);
            (old.find(|old| old.mountpoint == mount.mountpoint && old.pid == mount.pid), mount)
        })
    }
}

fn data_paths(pairs: &Pairs<'_>, rate: impl Fn(u64) -> f64) -> Vec<DataPathRow> {
    let (mut wire, mut lane) = (Total::default(), Total::default());
    for (old, server) in pairs.servers() {
        wire.add(Total::of_server(old, server, |calls| calls.data_path == "wire"));
        lane.add(Total::of_server(old, server, |calls| calls.data_path == "lane"));
    }
    let (mut mount_wire, mut mount_lane, mut passed) = (Total::default(), Total::default(), Total::default());
    for (old, mount) in pairs.mounts() {
        let old = old.unwrap_or(mount);
        mount_wire.add(Total::since(&Total::of_io(&old.wire), Total::of_io(&mount.wire)));
        mount_lane.add(Total::since(&Total::of_io(&old.lane), Total::of_io(&mount.lane)));
        let opens =
            |mount: &MountStatus| Total { operations: mount.kernel.opens_passed_through, ..Total::default() };
        passed.add(Total::since(&opens(old), opens(mount)));
    }
    let row = |name, total: &Total, has_errors: bool, has_bytes: bool| DataPathRow {
        name,
        operations: rate(total.operations),
        errors: has_errors.then(|| rate(total.errors)),
        bytes_read: has_bytes.then(|| rate(total.bytes_read)),
        bytes_written: has_bytes.then(|| rate(total.bytes_written)),
        median: total.quantile(50),
        p99: total.quantile(99),
    };
    let mut rows = Vec::new();
    if !pairs.after.servers.is_empty() {
        rows.push(row("servers: wire", &wire, true, true));
        rows.push(row("servers: lane", &lane, true, false));
    }
    if !pairs.after.mounts.is_empty() {
        rows.push(row("mounts: wire", &mount_wire, false, true));
        rows.push(row("mounts: lane", &mount_lane, false, true));
        rows.push(row("mounts: passed, opens", &passed, false, false));
    }
    rows
}

fn clients(
    old: Option<&Status>,
    server: &Status,
    rate: impl Fn(u64) -> f64,
) -> impl Iterator<Item = ClientRow> {
    server.connections.iter().map(move |connection| {
        let lane = server.lanes.iter().find(|lane| lane.nfs_peer.as_deref() == Some(&connection.peer));
        let mut earlier = old.into_iter().flat_map(|old| &old.connections);
        // A later connection from the same port is younger than the interval.
        let earlier =
            earlier.find(|earlier| earlier.peer == connection.peer && earlier.calls <= connection.calls);
        // A connection of which an earlier status of the server knows nothing has begun since.
        let at_first = |now: u64| if old.is_some() { 0 } else { now };
        let since = |now: u64, then: Option<u64>| rate(now.saturating_sub(then.unwrap_or(at_first(now))));
        ClientRow {
            peer: connection.peer.clone(),
            local: connection.local,
            calls: since(connection.calls, earlier.map(|earlier| earlier.calls)),
            bytes_in: since(connection.bytes_in, earlier.map(|earlier| earlier.bytes_in)),
            bytes_out: since(connection.bytes_out, earlier.map(|earlier| earlier.bytes_out)),
            grants: lane.map(|lane| lane.grants),
            pid: lane.map(|lane| lane.pid).filter(|pid| *pid != 0),
            reason: connection.reason.clone(),
        }
    })
}

fn mount_row(old: Option<&MountStatus>, mount: &MountStatus, rate: impl Fn(u64) -> f64) -> MountRow {
    let old = old.unwrap_or(mount);
    let since = |number: fn(&MountStatus) -> u64| rate(number(mount).saturating_sub(number(old)));
    MountRow {
        mountpoint: mount.mountpoint.clone(),
        source: mount.source.clone(),
        data_path: mount.data_path.clone(),
        requests: since(|mount| mount.kernel.requests),
        bytes_read: since(|mount| mount.lane.bytes_read + mount.wire.bytes_read),
        bytes_written: since(|mount| mount.lane.bytes_written + mount.wire.bytes_written),
        opens_passed_through: since(|mount| mount.kernel.opens_passed_through),
        under_way: mount.kernel.requests_under_way,
        reasons: mount.reasons.clone(),
    }
}

/// The clients and mounts without a lane whose other end is on this host. A client in a container with an
/// address of its own can't be told from one on another host.
fn missing_lanes(sample: &Sample, is_own: impl Fn(IpAddr) -> bool) -> Vec<MissingLane> {
    let is_here = |address: &str| address.parse().is_ok_and(|address: SocketAddr| is_own(address.ip()));
    let connections = sample.servers.iter().flat_map(|server| &server.connections);
    let clients = connections.filter(|client| client.admitted && !client.local && is_here(&client.peer));
    let mounts = sample.mounts.iter().filter(|mount| !mount.local && is_here(&mount.server));
    clients
        .map(|client| MissingLane { who: client.peer.clone(), reason: client.reason.clone() })
        .chain(mounts.map(|mount| MissingLane {
            who: path_text::text(&mount.mountpoint),
            reason: mount.reasons.join("; "),
        }))
        .collect()
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    /// Calls of at most 10 µs, at most 1 ms, and more.
    fn times(fast: u64, slow: u64, slower: u64) -> serde_json::Value {
        json!([
            {"at_most_ns": 10_000, "calls": fast},
            {"at_most_ns": 1_000_000, "calls": slow},
            {"at_most_ns": null, "calls": slower},
        ])
    }

    /// A server's status as its socket sends it.
    pub fn server(reads: u64, bytes: u64, calls: u64) -> Status {
        serde_json::from_value(json!({
            "version": "0", "instance": "ab", "pid": 1, "uptime_seconds": 9, "listen": ["[::]:2049"],
            "notices": [], "mounts": [], "memory": {},
            "exports": [
                {"path": "/srv", "id": 1, "clients": ["*(rw)"], "problem": null, "tree": "given"},
                {"path": "/gone", "id": 2, "clients": [], "problem": "no such directory"},
            ],
            "connections": [
                {"peer": "127.0.0.1:700", "admitted": true, "local": true, "reason": "through /run/x.lane",
                 "age_seconds": 5, "calls": calls, "bytes_in": 0, "bytes_out": 0},
                {"peer": "127.0.0.1:701", "admitted": true, "local": false, "reason": "it has no_lane",
                 "age_seconds": 5, "calls": 3 * calls, "bytes_in": 100 * calls, "bytes_out": 0},
                {"peer": "192.0.2.9:702", "admitted": true, "local": false, "reason": "it hasn't asked",
                 "age_seconds": 5, "calls": 1, "bytes_in": 1, "bytes_out": 1},
            ],
            "lanes": [{"nfs_peer": "127.0.0.1:700", "pid": 4242, "uid": 0, "grants": 17}],
            "grants": {"open": 17},
            "counters": {},
            "export_calls": [
                {"export": "none", "data_path": "wire", "calls": reads, "errors": 1, "bytes_read": 0,
                 "bytes_written": 0, "times": times(reads, 0, 0)},
                {"export": "/srv", "data_path": "wire", "calls": reads, "errors": 0, "bytes_read": bytes,
                 "bytes_written": 2 * bytes, "times": times(0, reads, 0)},
                {"export": "/srv", "data_path": "lane", "calls": 5 * reads, "errors": 0, "bytes_read": 0,
                 "bytes_written": 0, "times": times(4 * reads, 0, reads)},
            ],
        }))
        .unwrap()
    }

    /// A mount's status as its socket sends it.
    pub fn mount(requests: u64) -> MountStatus {
        let io = |times: u64| {
            json!({"opens": 0, "reads": times * requests, "bytes_read": 4096 * times * requests,
                   "writes": 0, "bytes_written": 0, "commits": 0, "round_trips": 0})
        };
        serde_json::from_value(json!({
            "version": "0", "source": "h:/srv", "mountpoint": "/mnt", "server": "127.0.0.1:2049", "pid": 7,
            "uptime_seconds": 9, "road": "wire", "local": false, "since_seconds": 9,
            "reasons": ["no server socket in /run/samehost"], "instance": null, "lane": io(0), "wire": io(1),
            "changes": [], "open_files": 0, "opens_passed_through": 4 * requests, "opens_refused": 0,
            "inodes": 1, "requests": requests, "requests_under_way": 2, "reconnects": 0, "retransmits": 0,
            "bytes_resent": 0, "lane_calls": 0, "probes": 0, "road_changes": 0,
        }))
        .unwrap()
    }

    /// A sample taken so many seconds after a common beginning.
    pub fn sample(begin: Instant, seconds: u64, servers: Vec<Status>, mounts: Vec<MountStatus>) -> Sample {
        Sample { at: begin + Duration::from_secs(seconds), servers, mounts, silent: Vec::new() }
    }

    fn rates() -> View {
        let begin = Instant::now();
        let before = sample(begin, 0, vec![server(100, 1000, 10)], vec![mount(10)]);
        let after = sample(begin, 2, vec![server(300, 9000, 30)], vec![mount(30)]);
        View::new(Some(&before), &after, |ip| ip.is_loopback())
    }

    #[test]
    fn rates_are_differences_by_time() {
        let view = rates();
        assert_eq!(view.seconds, 2.0);
        let wire = &view.data_paths[0];
        assert_eq!((wire.name, wire.operations, wire.errors), ("servers: wire", 200.0, Some(0.0)));
        assert_eq!((wire.bytes_read, wire.bytes_written), (Some(4000.0), Some(8000.0)));
        let lane = &view.data_paths[1];
        assert_eq!((lane.operations, lane.bytes_read), (500.0, None), "nothing counts what clients read");
        assert_eq!(wire.median, Some(Quantile::AtMostNs(10_000)));
        assert_eq!(wire.p99, Some(Quantile::AtMostNs(1_000_000)));
        assert_eq!(lane.median, Some(Quantile::AtMostNs(10_000)));
        assert_eq!(lane.p99, Some(Quantile::MoreThanNs(1_000_000)));
        let export = &view.exports[0];
        assert_eq!((export.calls, export.bytes_read, export.bytes_written), (600.0, 4000.0, 8000.0));
        assert_eq!((view.exports[1].calls, view.exports[1].p99), (0.0, None));
        let text = serde_json::to_value(wire).unwrap();
        assert_eq!(
            (&text["median"], &text["p99"]["at_most_ns"]),
            (&json!({"at_most_ns": 10_000}), &json!(1_000_000))
        );
        let mounts: Vec<_> =
            view.data_paths[2..].iter().map(|row| (row.operations, row.bytes_read)).collect();
        assert_eq!(mounts, [(10.0, Some(40960.0)), (0.0, Some(0.0)), (40.0, None)]);
        assert_eq!((view.mounts[0].requests, view.mounts[0].under_way), (10.0, 2));
    }

    #[test]
    fn the_busiest_client_is_first() {
        let mut rows = rates().clients;
        let order = |rows: &[ClientRow]| {
            rows.iter().map(|row| row.peer.rsplit_once(':').unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(order(&rows), ["701", "700", "702"]);
        assert_eq!((rows[0].calls, rows[0].bytes_in), (30.0, 1000.0));
        assert_eq!((rows[1].grants, rows[1].pid), (Some(17), Some(4242)));
        ClientOrder::Grants.sort(&mut rows);
        assert_eq!(order(&rows), ["700", "701", "702"]);
        ClientOrder::Received.sort(&mut rows);
        assert_eq!(order(&rows), ["701", "700", "702"]);
    }

    /// Such as that of a command that ends within seconds.
    #[test]
    fn a_connection_that_has_begun_since_counts_from_its_beginning() {
        let begin = Instant::now();
        let mut old = server(0, 0, 10);
        old.connections.clear();
        let before = sample(begin, 0, vec![old], Vec::new());
        let after = sample(begin, 2, vec![server(0, 0, 10)], Vec::new());
        let view = View::new(Some(&before), &after, |_| false);
        assert_eq!((view.clients[0].calls, view.clients[0].bytes_in), (15.0, 500.0));
    }

    #[test]
    fn a_process_that_is_new_has_no_rate_yet() {
        let begin = Instant::now();
        let first = sample(begin, 0, Vec::new(), Vec::new());
        let after = sample(begin, 1, vec![server(100, 1000, 10)], vec![mount(10)]);
        for before in [None, Some(&first)] {
            let view = View::new(before, &after, |_| false);
            assert!(view.data_paths.iter().all(|row| row.operations == 0.0), "{view:?}");
            assert!(view.clients.iter().all(|row| row.calls == 0.0), "{view:?}");
        }
        // A restarted server's counters begin again.
        let before = sample(begin, 0, vec![server(500, 1000, 50)], Vec::new());
        let view = View::new(Some(&before), &after, |_| false);
        assert!(view.data_paths.iter().all(|row| row.operations >= 0.0), "{view:?}");
    }

    #[test]
    fn lanes_are_missed_by_those_of_this_host_only() {
        let missing = rates().missing_lanes;
        let missing: Vec<_> = missing.iter().map(|lane| (&*lane.who, &*lane.reason)).collect();
        let expected = [("127.0.0.1:701", "it has no_lane"), ("/mnt", "no server socket in /run/samehost")];
        assert_eq!(missing, expected);
    }
}
