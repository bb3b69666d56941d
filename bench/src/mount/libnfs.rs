//! The mount over the wire compared with libnfs, which is a client in user space, too, but needs no mount:
//! the cost of FUSE. The kernel's own client isn't available on every machine, and in an emulated one the
//! measurement would be of the emulation.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Mount, Serve};

use super::fio::{COMPARED_LOADS, FILE, SIZE, create_files};
use super::{WIRE, WIRE_4};
use crate::data_paths::json_of;
use crate::figure::{Figure, Table, bytes_per_second, ratio};
use crate::{Effort, drop_caches};

/// One table.
pub fn measure(effort: &Effort, place: &Path) -> Result<Table> {
    let export = place.join("export");
    std::fs::create_dir(&export)?;
    create_files(&export, 1)?;
    let server = Serve::openly(&export).start();
    let mounts = [WIRE, WIRE_4].map(|options| Mount::new(&server, &export, options));
    let mut rows = Vec::new();
    for load in COMPARED_LOADS {
        let (mut ours, mut theirs): ([Figure; 2], _) = (Default::default(), Figure::default());
        for _ in 0..effort.runs {
            for (figure, mount) in ours.iter_mut().zip(&mounts) {
                figure.add(load.run(mount.path(), 1, effort)?);
            }
            let mut command = Command::new(&effort.nfsload);
            command
                .arg(server.libnfs_url(export.join(FILE)))
                .args(["--op", load.op(), "--bs", &load.block.to_string(), "--size", &SIZE.to_string()])
                .args(["--connections", "1", "--depth", "8", "--warmup", "0"])
                .args(["--seconds", &effort.seconds.to_string()]);
            theirs.add(json_of(&mut command)?["ops_per_s"].as_f64().context("a number of nfsload's")?);
        }
        rows.push(vec![
            format!("{}, direct, depth 8", load.title),
            load.show(&ours[0]),
            load.show(&ours[1]),
            load.show(&theirs),
            ratio(&ours[0], &theirs),
            ratio(&ours[1], &theirs),
        ]);
    }
    let copy = place.join("copy");
    let (file, back) = (export.join(FILE), export.join("back"));
    let mut copies: [[Figure; 3]; 2] = Default::default();
    for _ in 0..effort.runs {
        let cp = |from: &Path, to: &Path| timed(Command::new("cp").arg(from).arg(to), to);
        for (version, mount) in mounts.iter().enumerate() {
            // Reads must come from the server, not from this mount's cache.
            drop_caches()?;
            copies[0][version].add(cp(&mount.join(FILE), &copy)?);
            copies[1][version].add(cp(&file, &mount.join("back"))?);
        }
        copies[0][2].add(timed(Command::new("nfs-cp").arg(server.libnfs_url(&file)).arg(&copy), &copy)?);
        copies[1][2].add(timed(Command::new("nfs-cp").arg(&file).arg(server.libnfs_url(&back)), &back)?);
    }
    for (operation, [ours, ours_4, theirs]) in
        ["256 MiB read by cp, nfs-cp", "256 MiB written by cp, nfs-cp"].iter().zip(&copies)
    {
        rows.push(vec![
            (*operation).to_owned(),
            ours.show(bytes_per_second),
            ours_4.show(bytes_per_second),
            theirs.show(bytes_per_second),
            ratio(ours, theirs),
            ratio(ours_4, theirs),
        ]);
    }
    Ok(Table {
        title: "Mount: the wire beside libnfs on tmpfs".to_owned(),
        description: "Mounts with lane=off, by NFSv3 and by NFSv4.2, loaded by fio as above, and \
                      libnfs, which needs no mount (bench/nfsload: one thread, one connection, queue \
                      depth 8), on the same file of the same server in turn; then the same file copied \
                      whole from and to the server, by cp(1) through the mount and by libnfs's nfs-cp. \
                      The kernel's own client isn't here: it can be run beside the server in an \
                      emulated machine only, which would be what is measured."
            .to_owned(),
        head: vec!["", "mount, vers=3", "mount, vers=4.2", "libnfs (3)", "3 / libnfs", "4.2 / libnfs"],
        rows,
    })
}

/// Bytes per second of a copy; removes the copy.
fn timed(command: &mut Command, copy: &Path) -> Result<f64> {
    let start = Instant::now();
    let output = run_within(command, Duration::from_secs(300));
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(copy).with_context(|| copy.display().to_string())?;
    Ok(SIZE as f64 / elapsed)
}
