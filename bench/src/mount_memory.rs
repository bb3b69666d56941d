//! The memory of a mount's process for open files, by each version of NFS.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use samehost_tests::process::resident_kib;
use samehost_tests::{Mount, Serve};

use crate::figure::{Table, per_item};

/// Files that are open at once, within the usual limit of descriptors.
const FILES: usize = 1000;

/// One table.
pub fn measure(place: &Path) -> Result<Table> {
    let export = place.join("mount-memory");
    std::fs::create_dir(&export)?;
    let name = |number: usize| format!("file-{number:05}");
    for file in 0..FILES {
        std::fs::write(export.join(name(file)), "")?;
    }
    let server = Serve::openly(&export).start();
    let mut rows = Vec::new();
    for version in ["4.2", "3"] {
        let mount = Mount::new(&server, &export, &format!("lane=off,vers={version}"));
        let pid = mount.pid();
        let resident =
            || resident_kib(pid).context("the mount's process runs").map(|kib| kib as f64 * 1024.0);
        let open = |file| File::options().read(true).write(true).open(mount.join(name(file)));
        // What is known of each file afterwards isn't measured.
        (0..FILES).try_for_each(|file| open(file).map(drop))?;
        let before = resident()?;
        let opened = (0..FILES).map(open).collect::<std::io::Result<Vec<File>>>()?;
        let after = resident()?;
        drop(opened);
        rows.push(vec![
            format!("opens, vers={version}"),
            FILES.to_string(),
            per_item((after - before) * 1000.0 / FILES as f64),
        ]);
    }
    Ok(Table {
        title: "Mount: memory".to_owned(),
        description:
            "What the resident memory of a mount's process grows by, a thousand files that are open \
                      for reading and writing. They have been open once before. Without a lane."
                .to_owned(),
        head: vec!["", "how many", "bytes a thousand"],
        rows,
    })
}
