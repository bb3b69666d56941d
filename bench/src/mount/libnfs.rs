//! The mount over the wire compared with libnfs, which is a client in user space, too, but needs no mount:
//! the cost of FUSE. The kernel's own client isn't available on every machine, and in an emulated one the
//! measurement would be of the emulation.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Mount, Serve};

use super::fio::{COMPARED_LOADS, FILE, SIZE, create_files};
use crate::data_paths::json_of;
use crate::enable_uring::EnableUring;
use crate::figure::{Figure, Table, bytes_per_second, ratio};
use crate::{Effort, drop_caches};

/// The compared mounts, with their columns' headings.
const MOUNTS: [(&str, &str); 4] = [
    ("vers=3, /dev/fuse", "lane=off,vers=3,uring=off"),
    ("vers=4.2, /dev/fuse", "lane=off,vers=4.2,uring=off"),
    ("vers=3, io_uring", "lane=off,vers=3,uring=required"),
    ("vers=4.2, io_uring", "lane=off,vers=4.2,uring=required"),
];

/// One table.
pub fn measure(effort: &Effort, place: &Path) -> Result<Table> {
    let export = place.join("export");
    std::fs::create_dir(&export)?;
    create_files(&export, 1)?;
    let server = Serve::openly(&export).start();
    let _uring = EnableUring::new()?;
    let compared = if EnableUring::exists() { &MOUNTS[..] } else { &MOUNTS[..2] };
    let mounts: Vec<Mount> =
        compared.iter().map(|(_, options)| Mount::new(&server, &export, options)).collect();
    let mut rows = Vec::new();
    for load in COMPARED_LOADS {
        let (mut ours, mut theirs) = (vec![Figure::default(); mounts.len()], Figure::default());
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
        rows.push(row(format!("{}, direct, depth 8", load.title), &ours, &theirs, |figure| {
            load.show(figure)
        }));
    }
    let copy = place.join("copy");
    let (file, back) = (export.join(FILE), export.join("back"));
    let cp = |from: &Path, to: &Path| timed(Command::new("cp").arg(from).arg(to), to);
    let nfs_cp =
        |from: &OsStr, to: &OsStr, file: &Path| timed(Command::new("nfs-cp").arg(from).arg(to), file);
    let (mut read, mut written) =
        (vec![Figure::default(); mounts.len()], vec![Figure::default(); mounts.len()]);
    let (mut read_by_libnfs, mut written_by_libnfs) = (Figure::default(), Figure::default());
    for _ in 0..effort.runs {
        for (number, mount) in mounts.iter().enumerate() {
            // Reads must come from the server, not from this mount's cache.
            drop_caches()?;
            read[number].add(cp(&mount.join(FILE), &copy)?);
            written[number].add(cp(&file, &mount.join("back"))?);
        }
        read_by_libnfs.add(nfs_cp(server.libnfs_url(&file).as_ref(), copy.as_ref(), &copy)?);
        written_by_libnfs.add(nfs_cp(file.as_ref(), server.libnfs_url(&back).as_ref(), &back)?);
    }
    let show = |figure: &Figure| figure.show(bytes_per_second);
    rows.push(row("256 MiB read by cp, nfs-cp".to_owned(), &read, &read_by_libnfs, show));
    rows.push(row("256 MiB written by cp, nfs-cp".to_owned(), &written, &written_by_libnfs, show));
    let mut head = vec!["", "libnfs (3)"];
    head.extend(compared.iter().flat_map(|(heading, _)| [*heading, "/ libnfs"]));
    Ok(Table {
        title: "Mount: the wire beside libnfs on tmpfs".to_owned(),
        description: "Mounts with lane=off, by NFSv3 and by NFSv4.2, with the kernel's requests through \
                      /dev/fuse and by io_uring, loaded by fio as above, and libnfs, which needs no mount \
                      (bench/nfsload: one thread, one connection, queue depth 8), on the same file of the \
                      same server in turn; then the same file copied whole from and to the server, by cp(1) \
                      through the mount and by libnfs's nfs-cp. The goal is 1.0 of libnfs. The kernel's own \
                      client isn't here: it can be run beside the server in an emulated machine only, which \
                      would be what is measured."
            .to_owned(),
        head,
        rows,
    })
}

/// A row: libnfs, and each mount with its ratio to libnfs.
fn row(title: String, ours: &[Figure], theirs: &Figure, show: impl Fn(&Figure) -> String) -> Vec<String> {
    let mut row = vec![title, show(theirs)];
    row.extend(ours.iter().flat_map(|figure| [show(figure), ratio(figure, theirs)]));
    row
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
