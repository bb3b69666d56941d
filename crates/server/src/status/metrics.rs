//! The metrics of a server for Prometheus, collected at each scrape.
//!
//! Labels are exports (of what is counted a bounded number, see [`super::counters`]), data paths, programs,
//! procedures and statuses. Clients are no labels. Series that were never counted aren't written.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;

use control::MetricKind::{Counter, Gauge};
use control::exposition::{Collector, DescriptorEncoder, Labels, declared, family, histogram};
use control::path_text;
use lane::LaneServer;

use super::WireStatus;
use super::counters::SeriesKey;
use super::gather::grants;
use crate::lifecycle::process;
use crate::lifecycle::running::RunningServer;

/// Collects from a server until it is gone.
#[derive(Debug)]
pub(crate) struct ServerCollector(pub Weak<RunningServer>);

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(server) = self.0.upgrade() else { return Ok(()) };
        let scrape = Scrape { server: &server };
        scrape.process(&mut encoder)?;
        scrape.exports(&mut encoder)?;
        scrape.calls(&mut encoder)?;
        scrape.wire(&mut encoder)?;
        scrape.lanes(&mut encoder)?;
        scrape.nfs4_state(&mut encoder)
    }
}

struct Scrape<'a> {
    server: &'a RunningServer,
}

/// Writes a gauge without labels.
fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    family(to, name, help, Gauge, [(Labels::new(), value)])
}

/// Writes a gauge and its bound, both by the label `name`.
fn bounded(
    to: &mut DescriptorEncoder<'_>,
    name: &'static str,
    (metric, help): (&str, &str),
    (bound, bound_help): (&str, &str),
    values: &[(&str, usize, usize)],
) -> fmt::Result {
    let labels = |what: &str| vec![(name, what.to_owned())];
    let now = values.iter().map(|(what, now, _)| (labels(what), *now as u64));
    family(to, metric, help, Gauge, now)?;
    let most = values.iter().map(|(what, _, most)| (labels(what), *most as u64));
    family(to, bound, bound_help, Gauge, most)
}

impl Scrape<'_> {
    fn process(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        family(to, "samehost_build_info", "The version of the server", Gauge, [(version, 1)])?;
        let uptime = self.server.since.elapsed().as_secs();
        gauge(to, "samehost_uptime_seconds", "Time since the server's start", uptime)?;
        let notices = self.server.notices().len() as u64;
        gauge(to, "samehost_notices", "Limitations of this server, which its status names", notices)?;
        declared(to, ("samehost_memory", "Memory of the process"), &[(Labels::new(), process::memory())])
    }

    fn exports(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let table = self.server.service.access.table();
        let served = table.configured().map(|entry| {
            let export = vec![("export", path_text::text(entry.export.path()))];
            (export, u64::from(entry.store.is_ok()))
        });
        family(to, "samehost_export_served", "Whether an export is served (1) or can't be (0)", Gauge, served)
    }

    fn calls(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counters = &self.server.service.counters;
        let names = self.server.opening.slots.names();
        let labels = |key: SeriesKey| -> Labels {
            vec![
                ("export", names.get(key.export.index()).cloned().unwrap_or_default()),
                ("data_path", key.data_path.name().to_owned()),
                ("program", key.operation.program().to_owned()),
                ("procedure", key.operation.name().to_owned()),
            ]
        };
        let series = counters.series();
        let calls = series.iter().map(|(key, totals)| (labels(*key), totals.calls));
        family(to, "samehost_calls", "Calls; of NFSv4, operations of COMPOUNDs", Counter, calls)?;
        let payload = series.iter().filter(|(_, totals)| totals.bytes > 0);
        let payload = payload.map(|(key, totals)| (labels(*key), totals.bytes));
        family(to, "samehost_call_payload_bytes", "Data that READ and WRITE have moved", Counter, payload)?;
        let failures = counters.failures();
        let failures = failures.iter().map(|((key, status), count)| {
            let mut labels = labels(*key);
            labels.push(("status", status.clone()));
            (labels, *count)
        });
        family(
            to,
            "samehost_call_errors",
            "Calls that were answered with an error, by its name in the RFC without prefix and underscores",
            Counter,
            failures,
        )?;
        let timed = series.iter().filter(|(_, totals)| totals.times.count() > 0);
        histogram(
            to,
            "samehost_call_duration_seconds",
            "Time from a received call to its encoded reply, of one call in eight of each worker thread",
            timed.map(|(key, totals)| (labels(*key), totals.times.histogram())),
        )
    }

    fn wire(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let wire = &self.server.wire;
        let lanes: HashSet<SocketAddr> = self.lanes_of().into_iter().collect();
        let (mut with_lane, mut admitted, mut strangers) = (0, 0, 0);
        for connection in wire.connections() {
            match (connection.admitted, lanes.contains(&connection.peer.address)) {
                (_, true) => with_lane += 1,
                (true, false) => admitted += 1,
                (false, false) => strangers += 1,
            }
        }
        let kind = |kind: &str| vec![("kind", kind.to_owned())];
        family(
            to,
            "samehost_connections",
            "Open TCP connections of clients with a lane, of others, and of peers without any export",
            Gauge,
            [(kind("lane"), with_lane), (kind("wire"), admitted), (kind("stranger"), strangers)],
        )?;
        let limits = wire.limits();
        let most = limits.max_connections as u64;
        gauge(to, "samehost_connections_limit", "The most TCP connections at the same time", most)?;
        let busy = wire.busy_workers() as u64;
        gauge(to, "samehost_workers_busy", "Worker threads that run calls now", busy)?;
        gauge(to, "samehost_workers", "Worker threads", limits.threads as u64)?;
        let totals = wire.totals();
        let status = WireStatus {
            accepted: totals.connections,
            refused: totals.refused,
            displaced: totals.displaced,
            broken: totals.broken,
            denied: totals.denied,
        };
        declared(to, ("samehost_wire", "Connections and calls"), &[(Labels::new(), status)])?;
        let bytes = [
            ("samehost_wire_received_bytes", totals.bytes_in, "Bytes received over all connections"),
            ("samehost_wire_sent_bytes", totals.bytes_out, "Bytes sent over all connections"),
        ];
        for (name, value, help) in bytes {
            family(to, name, help, Counter, [(Labels::new(), value)])?;
        }
        bounded(
            to,
            "budget",
            (
                "samehost_memory_budget_used_bytes",
                "Memory for large calls, and for replies that peers leave unread",
            ),
            ("samehost_memory_budget_limit_bytes", "The most memory of each kind"),
            &[
                ("receive", totals.receive_memory, limits.receive_memory),
                ("reply", totals.reply_memory, limits.reply_memory),
            ],
        )
    }

    /// The connections that have a lane.
    fn lanes_of(&self) -> Vec<SocketAddr> {
        let lanes = self.server.lane.as_deref().map(LaneServer::status).unwrap_or_default();
        lanes.iter().map(|lane| lane.bound.nfs_peer).collect()
    }

    fn lanes(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let lanes = self.server.lane.as_deref().map(LaneServer::status).unwrap_or_default();
        gauge(to, "samehost_lanes", "Lanes to clients of this host", lanes.len() as u64)?;
        declared(to, ("samehost_grants", "Grants"), &[(Labels::new(), grants(&self.server.service, &lanes))])
    }

    fn nfs4_state(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let state = &self.server.service.state;
        let (counts, states, limits, grace) = state.run(|engine, now| {
            (engine.counts(), engine.state_counts(), engine.limits().clone(), engine.in_grace(now))
        });
        let (clients, sessions, all) = counts;
        bounded(
            to,
            "kind",
            (
                "samehost_nfs4_state",
                "NFSv4 state: clients, all opens, locks and delegations together, delegations",
            ),
            ("samehost_nfs4_state_limit", "The most NFSv4 state of each kind"),
            &[
                ("clients", clients, limits.clients),
                ("states", all, limits.all),
                ("delegations", states.delegations, limits.delegations),
            ],
        )?;
        gauge(to, "samehost_nfs4_sessions", "Sessions of NFSv4 clients", sessions as u64)?;
        gauge(to, "samehost_nfs4_opens", "Opens of NFSv4 clients", states.opens as u64)?;
        gauge(to, "samehost_nfs4_locks", "Lock owners of NFSv4 clients on files", states.locks as u64)?;
        let recalls = state.callbacks.recalls.load(Relaxed);
        family(
            to,
            "samehost_nfs4_recalls",
            "Delegations that clients were asked to return",
            Counter,
            [(Labels::new(), recalls)],
        )?;
        gauge(to, "samehost_nfs4_grace", "Whether the grace period after a restart is on", u64::from(grace))
    }
}
