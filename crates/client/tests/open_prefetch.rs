//! Open prefetch: files are granted before they are opened, which only the number of round trips shows.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use samehost_client as client;

use client::{Credential, DataPath, Handle, OpenOptions, Operation, Plus, Session, Status};
use support::{Served, wait_for};

const FILES: usize = 200;

fn name(i: usize) -> String {
    format!("file-{i:03}")
}

/// Creates the files, and waits until a later change is sure to change their ctimes.
async fn prepare(served: &Served) {
    for i in 0..FILES {
        fs::write(served.export().join(name(i)), format!("content of {i}")).unwrap();
    }
    settle(&served.export().join(name(FILES - 1))).await;
}

/// Waits until a change of the file is sure to change its ctime. The server prefetches no file before.
async fn settle(path: &Path) {
    let stat = fs::metadata(path).unwrap();
    let ctime = Duration::new(stat.ctime() as u64, stat.ctime_nsec() as u32);
    let settled = SystemTime::UNIX_EPOCH + ctime + Duration::from_millis(60);
    wait_for("the clock", || SystemTime::now() > settled).await;
}

async fn list(session: &Session, plus: Plus<'static>) -> Vec<(Vec<u8>, Option<Handle>)> {
    let entries = session.read_dir(&session.root(), plus).collect().await.unwrap();
    assert_eq!(entries.len(), FILES);
    entries.into_iter().map(|entry| (entry.name, entry.handle)).collect()
}

/// Reads a file. Returns its contents and its data path.
async fn read(session: &Session, name: &[u8]) -> client::Result<(Vec<u8>, DataPath)> {
    let file = session.open_at(&session.root(), name, &OpenOptions::reading()).await?;
    let bytes = file.read_into(Vec::new(), 0, 100).await?;
    let data_path = file.data_path();
    file.close().await?;
    Ok((bytes, data_path))
}

fn content(name: &[u8]) -> Vec<u8> {
    let number: usize = std::str::from_utf8(&name[5..]).unwrap().parse().unwrap();
    format!("content of {number}").into_bytes()
}

#[tokio::test]
async fn opens_in_the_order_of_a_listing_take_few_round_trips() {
    let served = Served::with_lane();
    prepare(&served).await;
    for (order, plus) in [("listed", Plus::None), ("named", Plus::None), ("by handle", Plus::All)] {
        let session = served.lane().await;
        let mut entries = list(&session, plus).await;
        if order == "named" {
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        let before = session.counters();
        for (name, handle) in &entries {
            let (bytes, data_path) = match handle {
                None => read(&session, name).await.unwrap(),
                Some(handle) => {
                    let file = session.open_handle(handle, name, &OpenOptions::reading()).await.unwrap();
                    (file.read_into(Vec::new(), 0, 100).await.unwrap(), file.data_path())
                }
            };
            assert_eq!((bytes, data_path), (content(name), DataPath::Lane));
        }
        let after = session.counters();
        let trips = after.lane.round_trips - before.lane.round_trips;
        // Prefetched files expire if this process is stopped for a while, so the number isn't exact.
        assert!(trips < FILES as u64 / 2, "{order}: {trips} round trips for {FILES} files");
        assert_eq!(after.lane.opens - before.lane.opens, FILES as u64);
        assert_eq!(after.wire.round_trips, before.wire.round_trips);
        assert_eq!(after.calls(Operation::Read), 0);
    }
}

/// Opens files by name until the next ones are prefetched. Returns the index of the next one.
async fn begin_sequence(session: &Session, names: &[String]) -> usize {
    for (at, name) in names.iter().enumerate().take(10) {
        read(session, name.as_bytes()).await.unwrap();
        if at == 5 {
            return at + 1;
        }
    }
    unreachable!("there are more files than that")
}

#[tokio::test]
async fn a_prefetched_file_that_has_changed_is_not_used() {
    let served = Served::with_lane();
    prepare(&served).await;
    let session = served.lane().await.as_user(Credential::Sys { uid: 1000, gid: 1000, groups: vec![] });
    let export = served.export();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755)).unwrap();
    let names: Vec<String> = (0..FILES).map(name).collect();
    list(&session, Plus::None).await;
    let at = begin_sequence(&session, &names).await;
    // The server has opened the next files already, or will soon.
    let path = |i: usize| export.join(&names[i]);
    fs::set_permissions(path(at), fs::Permissions::from_mode(0o600)).unwrap();
    let refused = read(&session, names[at].as_bytes()).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::Access));
    fs::remove_file(path(at + 1)).unwrap();
    let gone = read(&session, names[at + 1].as_bytes()).await.unwrap_err();
    assert_eq!(gone.status(), Some(Status::NoEntry));
    fs::write(export.join("new"), "another file").unwrap();
    fs::rename(export.join("new"), path(at + 2)).unwrap();
    assert_eq!(read(&session, names[at + 2].as_bytes()).await.unwrap().0, b"another file");
    fs::write(path(at + 3), "longer than it was").unwrap();
    let file =
        session.open_at(&session.root(), names[at + 3].as_bytes(), &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.attributes_at_open().unwrap().size, 18);
    assert_eq!(file.read_into(Vec::new(), 0, 100).await.unwrap(), b"longer than it was");
    fs::rename(path(at + 4), path(at + 5)).unwrap();
    assert_eq!(read(&session, names[at + 4].as_bytes()).await.unwrap_err().status(), Some(Status::NoEntry));
    assert_eq!(read(&session, names[at + 5].as_bytes()).await.unwrap().0, content(names[at + 4].as_bytes()));
}

#[tokio::test]
async fn a_prefetched_file_is_not_used_for_another_user() {
    let served = Served::with_lane();
    prepare(&served).await;
    for i in 0..FILES {
        fs::set_permissions(served.export().join(name(i)), fs::Permissions::from_mode(0o600)).unwrap();
    }
    settle(&served.export().join(name(FILES - 1))).await;
    let root = served.lane().await;
    let user = root.as_user(Credential::Sys { uid: 1000, gid: 1000, groups: vec![] });
    let names: Vec<String> = (0..FILES).map(name).collect();
    list(&root, Plus::None).await;
    let at = begin_sequence(&root, &names).await;
    for name in &names[at..at + 4] {
        assert_eq!(read(&user, name.as_bytes()).await.unwrap_err().status(), Some(Status::Access));
    }
    assert_eq!(read(&root, names[at].as_bytes()).await.unwrap().0, content(names[at].as_bytes()));
}

/// The number of this process's descriptors of files in the export.
fn open_descriptors(export: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| {
            // The server's clone of the mount has other paths.
            target.to_string_lossy().contains("file-") && !target.starts_with("/proc")
        })
    })
    .filter(|fd| {
        let (Ok(one), Ok(all)) = (fs::metadata(fd.path()), fs::metadata(export)) else { return false };
        one.dev() == all.dev()
            && fs::read_dir(export)
                .unwrap()
                .flatten()
                .any(|file| file.metadata().is_ok_and(|file| file.ino() == one.ino()))
    })
    .count()
}

#[tokio::test]
async fn unused_prefetched_files_are_released() {
    let served = Served::with_lane();
    prepare(&served).await;
    let session = served.lane().await;
    let names: Vec<String> = (0..FILES).map(name).collect();
    list(&session, Plus::None).await;
    begin_sequence(&session, &names).await;
    wait_for("the release of the unused files", || open_descriptors(&served.export()) == 0).await;
    // A later open works as usual.
    let after = read(&session, names[100].as_bytes()).await.unwrap();
    assert_eq!(after, (content(names[100].as_bytes()), DataPath::Lane));
}

#[tokio::test]
async fn prefetched_files_of_a_killed_server_are_not_used() {
    let mut served = Served::with_lane();
    prepare(&served).await;
    let session = served.lane().await;
    let names: Vec<String> = (0..FILES).map(name).collect();
    list(&session, Plus::None).await;
    let at = begin_sequence(&session, &names).await;
    served.kill();
    served.restart();
    for name in &names[at..at + 8] {
        assert_eq!(
            read(&session, name.as_bytes()).await.unwrap(),
            (content(name.as_bytes()), DataPath::Lane)
        );
    }
}
