//! The metrics of a mount for Prometheus: an endpoint of its own, asked at each scrape.
//!
//! The endpoint is started before the filesystem is mounted, so that an address in use fails the mount. Until
//! then it has no metrics. I/O that the kernel passes through reaches no process and is counted nowhere.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use client::Counters;
use control::MetricKind::Gauge;
use control::exposition::{
    Collector, DescriptorEncoder, Labels, MetricsEndpoint, Registry, declared, family, histogram,
};
use control::path_text;

use super::status::{self, MountIdentity, MountStatus};
use super::{MountPlan, ProcessError};
use crate::mount::Mount;

/// The mount, once there is one.
#[derive(Debug, Clone, Default)]
struct MountCollector(Arc<OnceLock<(Weak<Mount>, Arc<MountIdentity>)>>);

/// The endpoint of a mount's process.
#[derive(Debug)]
pub(super) struct MountMetrics {
    collector: MountCollector,
    _endpoint: MetricsEndpoint,
}

impl MountMetrics {
    /// Starts the endpoint, if the options ask for one.
    ///
    /// # Errors
    /// [`ProcessError::Metrics`].
    pub(super) fn start(plan: &MountPlan) -> Result<Option<Self>, ProcessError> {
        let Some(address) = &plan.metrics else { return Ok(None) };
        let collector = MountCollector::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector.clone()));
        let endpoint = MetricsEndpoint::start(address, registry)
            .map_err(|source| ProcessError::Metrics { address: address.clone(), source })?;
        Ok(Some(Self { collector, _endpoint: endpoint }))
    }

    /// Collects from this mount from now on.
    pub(super) fn set_mount(&self, mount: &Arc<Mount>, identity: &Arc<MountIdentity>) {
        // It is set once: a process has one mount.
        let _ = self.collector.0.set((Arc::downgrade(mount), Arc::clone(identity)));
    }
}

impl Collector for MountCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((mount, identity)) = self.0.get() else { return Ok(()) };
        let Some(mount) = mount.upgrade() else { return Ok(()) };
        write(&mut encoder, &status::snapshot(identity, &mount))?;
        times(&mut encoder, identity, &mount.session().counters())
    }
}

/// Writes the histograms of the times of I/O.
fn times(to: &mut DescriptorEncoder<'_>, identity: &MountIdentity, counters: &Counters) -> fmt::Result {
    let mountpoint = path_text::text(&identity.at);
    let all = [("lane", counters.lane_times), ("wire", counters.wire_times)].into_iter().flat_map(
        |(data_path, times)| {
            [("read", times.reads), ("write", times.writes), ("commit", times.commits)]
                .map(|(operation, latencies)| (data_path, operation, latencies))
        },
    );
    let labels = |data_path: &str, operation: &str| -> Labels {
        vec![
            ("mountpoint", mountpoint.clone()),
            ("data_path", data_path.to_owned()),
            ("operation", operation.to_owned()),
        ]
    };
    let counted = all.filter(|(.., latencies)| latencies.count() > 0);
    histogram(
        to,
        "samehost_mount_io_duration_seconds",
        "Time of READ, WRITE and COMMIT calls on the wire; on the lane of fsync(2), and of one read and one \
         write in sixteen",
        counted
            .map(|(data_path, operation, latencies)| (labels(data_path, operation), latencies.histogram())),
    )
}

fn write(to: &mut DescriptorEncoder<'_>, status: &MountStatus) -> fmt::Result {
    let mountpoint = || vec![("mountpoint", path_text::text(&status.mountpoint))];
    let with = |name, value: &str| -> Labels {
        let mut labels = mountpoint();
        labels.push((name, value.to_owned()));
        labels
    };
    let mut info = with("version", &status.version);
    info.extend([("source", status.source.clone()), ("server", status.server.clone())]);
    family(to, "samehost_mount_info", "What is mounted where", Gauge, [(info, 1)])?;
    let gauges = [
        ("samehost_mount_uptime_seconds", "Time since it was mounted", status.uptime_seconds),
        ("samehost_mount_local", "Whether newly opened files come over the lane", u64::from(status.local)),
        (
            "samehost_mount_tree",
            "Whether names and attributes come from the server's directory",
            u64::from(status.tree),
        ),
    ];
    for (name, help, value) in gauges {
        family(to, name, help, Gauge, [(mountpoint(), value)])?;
    }
    let data_path = with("data_path", &status.data_path);
    family(to, "samehost_mount_data_path", "The data path of newly opened files", Gauge, [(data_path, 1)])?;
    declared(to, ("samehost_mount", "Requests of the kernel"), &[(mountpoint(), status.kernel)])?;
    let io = [(with("data_path", "lane"), status.lane), (with("data_path", "wire"), status.wire)];
    declared(to, ("samehost_mount_io", "I/O of the mount's process"), &io)?;
    declared(to, ("samehost_mount_session", "The session with the server"), &[(mountpoint(), status.events)])
}
