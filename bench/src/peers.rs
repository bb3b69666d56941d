//! The same client on two servers of the same directory: Samehost over the wire, and Debian's nfs-ganesha.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;

use crate::Effort;
use crate::data_paths::{WORKLOADS, figure, json_of, row, show};
use crate::figure::{Figure, Table, bytes_per_second, microseconds, per_operation, per_second, ratio};
use crate::server_pair::{ServerPair, Target};

/// Size of the file.
const SIZE: usize = 256 << 20;

/// The file's URL for libnfs.
fn libnfs_url(pair: &ServerPair, target: Target) -> String {
    match target {
        Target::Ours => pair.ours.libnfs_url(pair.export.join("file")),
        Target::Ganesha => pair.ganesha.libnfs_url("/file"),
    }
}

/// The directory's URL for our client, which speaks the same version as nfsload.
fn url(pair: &ServerPair, target: Target) -> String {
    format!("nfs://127.0.0.1:{}{}?vers=3", pair.port(target), pair.export.display())
}

/// Two tables: by nfsload, and by our client.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Vec<Table>> {
    let pair =
        ServerPair::start(place, "bench", |export| std::fs::write(export.join("file"), pattern(1, SIZE)))?;
    Ok(vec![by_nfsload(effort, kind, &pair)?, by_own_client(effort, kind, &pair)?])
}

fn by_nfsload(effort: &Effort, kind: &str, pair: &ServerPair) -> Result<Table> {
    let mut rows = Vec::new();
    for connections in [1, 4] {
        for (op, block, title) in [
            ("randread", 4096, "4 KiB random read"),
            ("randwrite", 4096, "4 KiB random write"),
            ("read", 128 << 10, "128 KiB sequential read"),
            ("write", 128 << 10, "128 KiB sequential write"),
        ] {
            let mut rate = [Figure::default(), Figure::default()];
            let mut cost = [Figure::default(), Figure::default()];
            let mut busy = Figure::default();
            for _ in 0..effort.runs {
                for target in Target::ALL {
                    let mut command = pair.netns.command(&effort.nfsload);
                    command
                        .arg(libnfs_url(pair, target))
                        .args(["--op", op, "--bs", &block.to_string(), "--size", &SIZE.to_string()])
                        .args(["--connections", &connections.to_string(), "--depth", "8", "--warmup", "0"])
                        .args(["--seconds", &effort.seconds.to_string()]);
                    let before = pair.daemon(target).cpu_time().context("the server runs")?;
                    let run = json_of(&mut command)?;
                    let used = pair.daemon(target).cpu_time().context("the server runs")? - before;
                    let number = |key: &str| run[key].as_f64().context("a number");
                    rate[target as usize].add(number("ops_per_s")?);
                    if target == Target::Ours {
                        busy.add(number("ops_per_s")? * number("client_cpu_us_per_op")? / 1e6);
                    }
                    cost[target as usize].add(per_operation(used, number("ops")?));
                }
            }
            let shown = |f: &Figure| {
                if block > 4096 {
                    f.show(|ops| bytes_per_second(ops * f64::from(block)))
                } else {
                    f.show(per_second)
                }
            };
            rows.push(vec![
                format!("{title}, {connections} conn."),
                shown(&rate[0]),
                shown(&rate[1]),
                ratio(&rate[0], &rate[1]),
                cost[0].show(microseconds),
                cost[1].show(microseconds),
                ratio(&cost[0], &cost[1]),
                format!("{:.0} %", 100.0 * busy.median()),
            ]);
        }
    }
    Ok(Table {
        title: format!("Wire: Samehost and nfs-ganesha on {kind}, client libnfs"),
        description: "bench/nfsload (libnfs, one thread, queue depth 8 a connection) on both servers in \
                      turn; CPU is the server's processor time an operation; the last column says how much \
                      of one processor the one thread of the client used with Samehost. Goals: 1.5 (aim 2) \
                      times ganesha's operations at 4 KiB, 1.2 (aim 1.5) at 128 KiB; where the client is the \
                      limit, half of ganesha's CPU."
            .to_owned(),
        head: vec![
            "",
            "Samehost",
            "ganesha",
            "ratio",
            "CPU, Samehost",
            "CPU, ganesha",
            "ratio",
            "client busy",
        ],
        rows,
    })
}

fn by_own_client(effort: &Effort, kind: &str, pair: &ServerPair) -> Result<Table> {
    let mut rates: Vec<[Figure; 2]> = vec![Default::default(); WORKLOADS.len()];
    for _ in 0..effort.runs {
        for target in Target::ALL {
            let mut command: Command = pair.ganesha.command(binary());
            command
                .args([
                    "bench",
                    &url(pair, target),
                    "--lane",
                    "off",
                    "--json",
                    "--runs",
                    "1",
                    "--size",
                    "256",
                ])
                .args(["--time", &format!("{:.0}", effort.seconds * 1000.0)]);
            let report = json_of(&mut command)?;
            for ((name, _), rate) in WORKLOADS.iter().zip(&mut rates) {
                rate[target as usize].add(figure(&row(&report, name)?["wire"]).median());
            }
        }
    }
    let rows = WORKLOADS
        .iter()
        .zip(&rates)
        .map(|((name, title), [ours, ganesha])| {
            vec![(*title).to_owned(), show(name, ours), show(name, ganesha), ratio(ours, ganesha)]
        })
        .collect();
    Ok(Table {
        title: format!("Wire: Samehost and nfs-ganesha on {kind}, our own client"),
        description:
            "`samehost bench --lane off` (one thread, queue depth 8, one connection) on both servers in turn."
                .to_owned(),
        head: vec!["", "Samehost", "ganesha", "ratio"],
        rows,
    })
}
