//! The server's memory for clients, opens and locks: its resident memory before and after.

use std::path::Path;

use anyhow::{Context, Result};
use proto::nfs4::{SHARE_ACCESS_BOTH, SHARE_ACCESS_WANT_NO_DELEG};
use samehost_tests::Serve;

use super::session::{Opened, Session};
use super::wire::Wire;
use crate::figure::{Table, per_item};

/// Clients with a session each, within one peer's share, of as many slots as the kernel's client asks for.
const CLIENTS: usize = 2000;
const SLOTS: u32 = 64;
/// Files, each opened by this many owners. They fit into one peer's share of the server's descriptors with
/// a limit of 20,000 open files.
const FILES: usize = 1000;
const OWNERS: usize = 10;
/// Locks of one owner on each file, none adjacent to another.
const LOCKS: usize = 10;

/// One table. A `scale` below 1 reduces the number of items.
pub fn measure(place: &Path, scale: f64) -> Result<Table> {
    let scaled = |count: usize| ((count as f64 * scale) as usize).max(10);
    let (clients, files) = (scaled(CLIENTS), scaled(FILES));
    let export = place.join("memory");
    std::fs::create_dir(&export)?;
    for file in 0..files {
        std::fs::write(export.join(super::file_name(file)), "")?;
    }
    let server = Serve::openly(&export).start();
    let resident = || server.daemon().resident_kib().context("it runs").map(|kib| kib as f64 * 1024.0);
    let mut rows = Vec::new();
    let mut row = |what: &str, count: usize, before: f64, after: f64| {
        rows.push(vec![what.to_owned(), count.to_string(), per_item((after - before) / count as f64)]);
    };

    let mut session = Session::new(Wire::connect(server.port())?, b"first", SLOTS)?;
    let directory = session.walk(&export.display().to_string())?;
    // Every file is opened once before: the server's cache of files isn't measured.
    let share = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    for file in 0..files {
        let opened = session.open(&directory, super::file_name(file).as_bytes(), b"warm", share)?;
        session.close(&opened)?;
    }

    let before = resident()?;
    let mut wire = session.wire;
    for client in 0..clients {
        let name = format!("Linux NFSv4.2 a-host-name-of-some-length-{client}");
        wire = Session::new(wire, name.as_bytes(), SLOTS)?.wire;
    }
    let after = resident()?;
    row("clients with a session of 64 slots", clients, before, after);

    let mut session = Session::new(wire, b"opener", SLOTS)?;
    let before = resident()?;
    let mut opened: Vec<Opened> = Vec::with_capacity(files);
    for owner in 0..OWNERS {
        let owner = format!("open id:{owner:024}");
        opened.clear();
        for file in 0..files {
            let name = super::file_name(file);
            opened.push(session.open(&directory, name.as_bytes(), owner.as_bytes(), share)?);
        }
    }
    let after = resident()?;
    row("opens, ten owners a file", files * OWNERS, before, after);

    let before = after;
    // A lock owner uses one descriptor for each file, independent of its number of locks.
    for (number, opened) in opened.iter().enumerate() {
        for lock in 0..LOCKS {
            session.lock(opened, format!("lock id:{number:024}").as_bytes(), 2 * lock as u64, false)?;
        }
    }
    let after = resident()?;
    row("locks, ten of one owner a file", files * LOCKS, before, after);
    Ok(Table {
        title: "NFSv4: memory".to_owned(),
        description:
            "What the server's resident memory grows by, an item. The kernel's own memory (a descriptor \
                for each lock owner on a file) isn't in it."
                .to_owned(),
        head: vec!["", "how many", "bytes each"],
        rows,
    })
}
