//! Servers of one CephFS beside nfs-ganesha: the pause after one was killed, and what reads, writes, opens
//! and locks cost. Runs beside the Ceph of `tests/ceph/run`.

mod failover;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use proto::nfs4::{SHARE_ACCESS_BOTH, SHARE_ACCESS_WANT_NO_DELEG};
use samehost_tests::process::run;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, run_ok};

use crate::Effort;
use crate::data_paths::{WORKLOADS, figure, json_of, row, show};
use crate::figure::{Figure, Table, microseconds, ratio};
use crate::nfs4::session::Session;
use crate::nfs4::wire::Wire;
use crate::nfs4::{WIRE_LOADS, WireLoad};
use server::{ClusterServer, Program};

/// Size of the files in bytes: three of them fit into the memory of the cluster's OSD.
const SIZE: usize = 64 << 20;
const SHARE: u32 = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;

/// The Ceph beside which this runs.
struct Ceph {
    configuration: PathBuf,
    scratch: Scratch,
}

impl Ceph {
    fn find() -> Result<Self> {
        let configuration =
            std::env::var_os("SAMEHOST_TEST_CEPH").context("no Ceph here: make bench-cluster")?.into();
        Ok(Self { configuration, scratch: Scratch::new() })
    }

    /// A ceph-fuse mount of the whole CephFS.
    fn mount(&self, name: &str) -> CephMount {
        let path = self.scratch.mkdir(&format!("mount-{name}"));
        let keyring = self.configuration.with_file_name("keyring");
        let pid_file = self.scratch.join(format!("mount-{name}.pid"));
        let mut command = Command::new("ceph-fuse");
        command.arg("-c").arg(&self.configuration).arg("-k").arg(keyring).args(["-n", "client.admin"]);
        command.arg("--fuse_disable_pagecache=true").arg(format!("--pid-file={}", pid_file.display()));
        run_ok(command.arg(&path));
        CephMount(path)
    }
}

/// A CephFS mount, unmounted when dropped.
struct CephMount(PathBuf);

impl CephMount {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for CephMount {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// Three tables.
pub fn measure(effort: &Effort) -> Result<Vec<Table>> {
    let ceph = Ceph::find()?;
    let failover = failover::measure(effort, &ceph)?;
    let mount = ceph.mount("single");
    let samehost = |name, port, cluster: Option<&str>| {
        ClusterServer::start(&ceph, Program::Samehost, name, port, cluster, Some(&mount))
    };
    let servers = [
        samehost("single", 20501, None)?,
        samehost("member", 20502, Some("cost"))?,
        ClusterServer::start(&ceph, Program::Ganesha, "ganesha", 20503, Some("cost"), None)?,
    ];
    for server in &servers {
        std::fs::write(mount.path().join(server.name), pattern(1, SIZE))?;
    }
    let operations = operations(effort, &servers)?;
    let wire = wire(effort, &servers)?;
    let lane = data_paths(effort, &servers[1], &mount)?;
    Ok(vec![failover, operations, wire, lane])
}

/// OPEN and LOCK, one after another.
fn operations(effort: &Effort, servers: &[ClusterServer; 3]) -> Result<Table> {
    let mut times: [[Figure; 3]; 2] = Default::default();
    for _ in 0..effort.runs {
        for (number, server) in servers.iter().enumerate() {
            let mut session = Session::new(Wire::connect(server.port)?, b"operations", 1)?;
            let directory = session.walk(&server.export())?;
            let (mut spent, mut done) = ([Duration::ZERO; 2], 0_u32);
            let begun = Instant::now();
            while begun.elapsed().as_secs_f64() < effort.seconds {
                let start = Instant::now();
                let opened = session.open(&directory, server.name.as_bytes(), b"opener", SHARE)?;
                spent[0] += start.elapsed();
                let start = Instant::now();
                let lock = session.lock(&opened, format!("owner {done}").as_bytes(), 0, false)?;
                spent[1] += start.elapsed();
                session.unlock(&opened, lock, 0)?;
                session.close(&opened)?;
                done += 1;
            }
            for (spent, times) in spent.iter().zip(&mut times) {
                times[number].add(spent.as_secs_f64() * 1e6 / f64::from(done));
            }
        }
    }
    let rows = ["OPEN", "LOCK"].iter().zip(&times).map(|(title, [single, member, ganesha])| {
        vec![
            (*title).to_owned(),
            single.show(microseconds),
            member.show(microseconds),
            ratio(member, single),
            ganesha.show(microseconds),
            ratio(member, ganesha),
        ]
    });
    Ok(Table {
        title: "Cluster: OPEN and LOCK on CephFS".to_owned(),
        description: "OPEN, LOCK, LOCKU and CLOSE of one file one after another by NFSv4.2, time of an OPEN \
                      and of a LOCK: a Samehost without a cluster, a node of a cluster on the same ceph-fuse \
                      mount, and an nfs-ganesha (FSAL_CEPH) of that cluster."
            .to_owned(),
        head: vec!["", "single", "in a cluster", "cluster / single", "ganesha", "cluster / ganesha"],
        rows: rows.collect(),
    })
}

/// READ and WRITE over the wire.
fn wire(effort: &Effort, servers: &[ClusterServer; 3]) -> Result<Table> {
    let mut rows = Vec::new();
    for load in WIRE_LOADS {
        let WireLoad { op, block, title } = load;
        let mut rates: [Figure; 2] = Default::default();
        for _ in 0..effort.runs {
            for (server, rate) in servers[1..].iter().zip(&mut rates) {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["nfs4-load", "--vers", "4", "--port", &server.port.to_string()]);
                command.args(["--directory", &server.export(), "--name", server.name, "--op", op]);
                command.args(["--url", "nfs://127.0.0.1/", "--bs", &block.to_string()]);
                command.args(["--size", &SIZE.to_string(), "--seconds", &effort.seconds.to_string()]);
                rate.add(json_of(&mut command)?["ops_per_s"].as_f64().context("a number")?);
            }
        }
        let shown = |rate: &Figure| load.show(rate);
        let [ours, ganesha] = &rates;
        rows.push(vec![title.to_owned(), shown(ours), shown(ganesha), ratio(ours, ganesha)]);
    }
    Ok(Table {
        title: "Cluster: NFSv4.2 over CephFS".to_owned(),
        description: "READ and WRITE (unstable) of a file of 64 MiB on CephFS by the loop of the section \
                      \"NFSv4.2 beside NFSv3\": a Samehost on ceph-fuse, and nfs-ganesha with FSAL_CEPH, \
                      both nodes of one cluster."
            .to_owned(),
        head: vec!["", "Samehost", "ganesha", "ratio"],
        rows,
    })
}

/// The data paths beside ceph-fuse itself.
fn data_paths(effort: &Effort, server: &ClusterServer, mount: &CephMount) -> Result<Table> {
    let mut command = Command::new(binary());
    let url = format!("nfs://127.0.0.1:{}{}", server.port, server.export());
    command.args(["bench", &url, "--lane", "required", "--json", "--size", "64", "--runs"]);
    command.args([&effort.runs.to_string(), "--time", &format!("{:.0}", effort.seconds * 1000.0)]);
    command.arg("--raw").arg(mount.path()).arg("--run-dir").arg(server.run_dir());
    let report = json_of(&mut command)?;
    let mut rows = Vec::new();
    for (name, title) in WORKLOADS {
        let row = row(&report, name)?;
        let [raw, lane, wire] = ["raw", "lane", "wire"].map(|data_path| figure(&row[data_path]));
        let shown = |figure: &Figure| show(name, figure);
        rows.push(vec![
            title.to_owned(),
            shown(&raw),
            shown(&lane),
            shown(&wire),
            ratio(&lane, &raw),
            ratio(&wire, &raw),
        ]);
    }
    Ok(Table {
        title: "Cluster: ceph-fuse, lane and wire".to_owned(),
        description:
            "`samehost bench --raw` on a node of a cluster: the same loop on ceph-fuse's mount itself, \
                      over the lane and over the wire; a file of 64 MiB, queue depth 8."
                .to_owned(),
        head: vec!["", "ceph-fuse", "lane", "wire", "lane / ceph-fuse", "wire / ceph-fuse"],
        rows,
    })
}
