//! The client over the wire by each version of NFS, against our own server: every operation, large transfers,
//! paths, listings.

mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use bytes::Bytes;
use samehost_client as client;

use client::{
    Access, Advice, Create, DataPath, Fallocate, FileKind, Follow, LaneMode, Node, OpenOptions, Operation,
    SeekTo, Session, SetAttributes, SetTime, Stability, Status, Timestamp, Version,
};
use support::{Served, by_each_version, on_disk, pattern};

by_each_version! {
    #[tokio::test]
    every_procedure_works,
    #[tokio::test]
    large_reads_and_writes_are_split_into_pieces,
    #[tokio::test]
    stable_writes_need_no_commit_and_lengths_can_be_set,
    #[tokio::test]
    uncommitted_writes_of_a_file_are_bounded_by_commits,
    #[tokio::test]
    uncommitted_writes_of_all_files_are_bounded_and_writes_without_room_are_stable,
    #[tokio::test]
    a_large_directory_is_listed_completely_by_both_procedures,
    #[tokio::test]
    paths_follow_links_inside_the_export_only,
    #[tokio::test]
    a_url_may_name_a_file_inside_an_export,
    #[tokio::test]
    the_first_host_of_a_url_that_can_be_reached_is_used,
    #[tokio::test]
    whole_files_are_copied_in_and_out,
    #[tokio::test]
    copies_end_where_their_source_ends,
    #[tokio::test]
    data_appended_during_a_copy_is_copied,
    #[tokio::test]
    a_path_is_found_by_one_call_since_nfs4,
    #[tokio::test]
    holes_are_read_and_advice_is_taken_or_ignored,
}

async fn the_first_host_of_a_url_that_can_be_reached_is_used(version: Version) {
    let served = Served::wire_only();
    fs::write(served.export().join("file"), "text").unwrap();
    let url = served.url();
    // Nothing listens at the first.
    let both = url.to_string().replacen("nfs://", "nfs://127.0.0.1:1,", 1);
    let options = served.options(LaneMode::Off).version(version);
    let session = Session::connect(&both.parse().unwrap(), options.clone()).await.unwrap();
    assert_eq!(session.lookup(&session.root(), b"file").await.unwrap().attributes.unwrap().size, 4);
    let none = Session::connect(&"nfs://127.0.0.1:1,127.0.0.1:2/".parse().unwrap(), options).await;
    assert!(none.unwrap_err().is_unreachable());
}

async fn every_procedure_works(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let export = served.export();
    let root = session.root();
    session.null().await.unwrap();

    let set = SetAttributes { mode: Some(0o750), ..SetAttributes::default() };
    let dir = session.make_dir(&root, b"dir", &set).await.unwrap().handle;
    assert_eq!(fs::metadata(export.join("dir")).unwrap().permissions().mode() & 0o7777, 0o750);

    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let made = session.create(&dir, b"file", &Create::Guarded(set)).await.unwrap();
    let again = session.create(&dir, b"file", &Create::Guarded(set)).await.unwrap_err();
    assert_eq!(again.status(), Some(Status::Exists));
    assert!(again.to_string().contains("file"), "{again}");
    let verifier = [9; 8];
    let exclusive =
        session.create(&dir, b"once", &Create::Exclusive { verifier, mode: 0o600 }).await.unwrap();
    let retry = session.create(&dir, b"once", &Create::Exclusive { verifier, mode: 0o600 }).await.unwrap();
    assert_eq!(exclusive.handle, retry.handle);

    let found = session.lookup(&dir, b"file").await.unwrap();
    assert_eq!(found.handle, made.handle);
    let attributes = session.attributes(&found.handle).await.unwrap();
    assert_eq!((attributes.kind, attributes.mode, attributes.size), (FileKind::Regular, 0o640, 0));
    assert_eq!(attributes.fileid, fs::metadata(export.join("dir/file")).unwrap().ino());

    let when = Timestamp { seconds: 1_000_000_000, nanoseconds: 500_000_000 };
    let set = SetAttributes {
        size: Some(10),
        mtime: Some(SetTime::To(when)),
        atime: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    session.set_attributes(&found.handle, &set, None).await.unwrap();
    let after = session.attributes(&found.handle).await.unwrap();
    assert_eq!((after.size, after.mtime), (10, when));
    let stale_guard = session.set_attributes(&found.handle, &set, Some(attributes.ctime)).await.unwrap_err();
    assert_eq!(stale_guard.status(), Some(Status::NotSync));

    let access = session.access(&found.handle, Access::READ | Access::MODIFY).await.unwrap();
    assert!(access.contains(Access::READ));

    let link = session.symlink(&dir, b"link", b"file", &SetAttributes::default()).await.unwrap();
    assert_eq!(session.read_link(&link.handle).await.unwrap(), b"file");
    let fifo = session.make_node(&dir, b"fifo", Node::Fifo, &SetAttributes::default()).await.unwrap();
    assert_eq!(session.attributes(&fifo.handle).await.unwrap().kind, FileKind::Fifo);

    session.link(&found.handle, &root, b"hard").await.unwrap();
    assert_eq!(session.attributes(&found.handle).await.unwrap().nlink, 2);
    session.rename(&root, b"hard", &dir, b"harder").await.unwrap();
    assert!(session.lookup(&root, b"hard").await.is_err());
    session.remove(&dir, b"harder").await.unwrap();
    let not_empty = session.remove_dir(&root, b"dir").await.unwrap_err();
    assert_eq!(not_empty.status(), Some(Status::NotEmpty));
    for name in [&b"file"[..], b"once", b"link", b"fifo"] {
        session.remove(&dir, name).await.unwrap();
    }
    session.remove_dir(&root, b"dir").await.unwrap();
    let gone = session.attributes(&dir).await.unwrap_err();
    assert_eq!(gone.status(), Some(Status::Stale));

    let stat = session.fs_stat(&root).await.unwrap();
    assert!(stat.total_bytes > 0 && stat.available_bytes <= stat.total_bytes);
    assert!(session.fs_info(&root).await.unwrap().read_max >= 4096);
    assert_eq!(session.path_conf(&root).await.unwrap().name_max, 255);
    let exports = session.exports().await.unwrap();
    let paths: Vec<_> = exports.iter().map(|export| &export.path[..]).collect();
    assert_eq!(paths, [export.as_os_str().as_bytes()]);

    let counters = session.counters();
    assert_eq!(counters.calls(Operation::Create), 4);
    assert_eq!(counters.calls(Operation::Symlink), 1);
    assert_eq!(counters.events.reconnects, 0);
    session.close().await;
}

#[tokio::test]
async fn exports_are_found_from_the_root_of_nfs4() {
    let mut served = Served::wire_only();
    let (first, other) = (served.export(), served.export().with_file_name("other"));
    let second = other.join("deep");
    fs::create_dir_all(second.join("with/directories/only")).unwrap();
    served.reload_lines(&format!(
        "{} *(rw,insecure,no_root_squash)\n{} *(ro,insecure)\n",
        first.display(),
        second.display()
    ));
    for version in [Version::V4_1, Version::V4_2] {
        let exports = served.wire_by(version).await.exports().await.unwrap();
        let paths: Vec<_> = exports.iter().map(|export| &export.path[..]).collect();
        assert_eq!(paths, [first.as_os_str().as_bytes(), second.as_os_str().as_bytes()]);
        assert!(exports.iter().all(|export| export.groups.is_empty()));
    }
    served.reload_lines(&format!("{} *(rw,insecure,no_root_squash,fsid=0)\n", first.display()));
    let options = served.options(client::LaneMode::Off).version(Version::V4_2);
    let session = client::Session::connect(&served.url().with_path(b"/"), options).await.unwrap();
    let exports = session.exports().await.unwrap();
    assert_eq!(exports.iter().map(|export| &export.path[..]).collect::<Vec<_>>(), [b"/"]);
}

async fn a_path_is_found_by_one_call_since_nfs4(version: Version) {
    let served = Served::wire_only();
    let deep = served.export().join("a/b/c/d/e");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "data").unwrap();
    symlink("c/d", served.export().join("a/b/link")).unwrap();
    let session = served.wire_by(version).await;
    let lookups = || session.counters().calls(Operation::Lookup);
    for (path, by_3, since_4) in [
        (&b"a/b/c/d/e/file"[..], 6, 1),
        (b"a/b/../b/./c/d/e/file", 7, 2),
        // The link, its target, the rest.
        (b"a/b/link/e/file", 7, 2),
    ] {
        let before = lookups();
        let found = session.walk(path, Follow::Yes).await.unwrap();
        assert_eq!(found.attributes.unwrap().size, 4);
        let expected = if version == Version::V3 { by_3 } else { since_4 };
        assert_eq!(lookups() - before, expected, "{}", String::from_utf8_lossy(path));
    }
    for (path, status) in [
        (&b"a/b/missing/c"[..], Status::NoEntry),
        (b"missing/b/c", Status::NoEntry),
        (b"a/b/c/d/e/file/f/g", Status::NotDirectory),
    ] {
        let error = session.walk(path, Follow::Yes).await.unwrap_err();
        assert_eq!(error.status(), Some(status), "{error}");
    }
}

async fn holes_are_read_and_advice_is_taken_or_ignored(version: Version) {
    let served = Served::wire_only();
    let file = fs::File::create(served.export().join("sparse")).unwrap();
    file.set_len(5 << 20).unwrap();
    let data = pattern(2, 300_000);
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 2_000_003).unwrap();
    let session = served.wire_by(version).await;
    let file = session.open(b"sparse", &OpenOptions::reading()).await.unwrap();
    for advice in [Advice::Sequential, Advice::WillNeed, Advice::Random, Advice::Normal] {
        file.advise(advice, 0, 1 << 20).await.unwrap();
    }
    let advised = session.counters().calls(Operation::Ioadvise);
    assert_eq!(advised, if version == Version::V4_2 { 4 } else { 0 }, "only NFSv4.2 has IO_ADVISE");
    let mut expected = vec![0; 5 << 20];
    expected[2_000_003..][..300_000].copy_from_slice(&data);
    for (offset, len) in [(0, 6 << 20), (1_999_999, 5), (2_300_000, 10), (5 << 20, 10), ((5 << 20) - 3, 10)] {
        let read = file.read_into(Vec::new(), offset, len).await.unwrap();
        let (offset, end) = (offset as usize, (offset as usize + len).min(5 << 20));
        assert!(read == expected[offset..end.max(offset)], "{len} bytes at {offset}");
    }
}

async fn large_reads_and_writes_are_split_into_pieces(version: Version) {
    let served = Served::wire_only();
    let mut options = served.options(client::LaneMode::Off).version(version);
    options.nconnect = 3;
    options.rsize = Some(64 << 10);
    options.wsize = Some(48 << 10);
    let session = client::Session::connect(&served.url(), options).await.unwrap();
    let create = OpenOptions::new().read(true).write(true).create(true);
    let file = session.open(b"large", &create).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Wire);
    let data = pattern(1, (5 << 20) + 123);
    file.write_at(&data, 0).await.unwrap();
    file.commit().await.unwrap();
    assert_eq!(on_disk(&served.export().join("large")), data);

    // Beyond the end, in the middle, after the end, and with both kinds of buffer.
    let all = file.read_into(Vec::new(), 0, data.len() + 4096).await.unwrap();
    assert!(all == data);
    for (offset, len) in
        [(0, 4096), (77, 4096), (100_000, 65_536), (65_535, 300_001), (data.len() - 10, 4096)]
    {
        let expected = &data[offset..data.len().min(offset + len)];
        let mut buffer = vec![0; len];
        let count = file.read_at(&mut buffer, offset as u64).await.unwrap();
        assert!(&buffer[..count] == expected, "at {offset}");
        let again = file.read_into(buffer, offset as u64, len).await.unwrap();
        assert!(again == expected, "at {offset}");
    }
    assert_eq!(file.read_at(&mut [0; 10], data.len() as u64).await.unwrap(), 0);
    assert_eq!(file.read_at(&mut [0; 10], u64::MAX).await.unwrap(), 0);

    let counters = session.counters();
    assert_eq!(counters.wire.bytes_written, data.len() as u64);
    assert_eq!(counters.wire.commits, 1);
    assert_eq!(counters.events.bytes_resent, 0);
    assert_eq!(counters.lane, client::DataPathCounters::default());
}

async fn stable_writes_need_no_commit_and_lengths_can_be_set(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap();
    file.write_stable(Bytes::from_static(b"0123456789"), 0, Stability::FileSync).await.unwrap();
    file.commit().await.unwrap();
    assert_eq!(session.counters().calls(Operation::Commit), 0);
    file.set_len(4).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 4);
    file.set_len(6).await.unwrap();
    assert_eq!(on_disk(&served.export().join("file")), b"0123\0\0");
    // Opening it to be replaced truncates it.
    session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    assert!(on_disk(&served.export().join("file")).is_empty());

    let read_only = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    let error = read_only.write_at(b"x", 0).await.unwrap_err();
    assert!(matches!(error, client::Error::NotOpenFor { wanted: "writing", .. }), "{error}");
}

async fn uncommitted_writes_of_a_file_are_bounded_by_commits(version: Version) {
    let served = Served::wire_only();
    let mut options = served.options(client::LaneMode::Off).version(version);
    options.unstable_max = 256 << 10;
    let session = client::Session::connect(&served.url(), options).await.unwrap();
    let file = session.open(b"stream", &OpenOptions::replacing()).await.unwrap();
    let data = pattern(2, 2 << 20);
    for (index, piece) in data.chunks(32 << 10).enumerate() {
        file.write_at(piece, (index * (32 << 10)) as u64).await.unwrap();
    }
    let commits = session.counters().calls(Operation::Commit);
    assert!(commits >= 7, "{commits} commits");
    file.close().await.unwrap();
    assert_eq!(on_disk(&served.export().join("stream")), data);
}

async fn uncommitted_writes_of_all_files_are_bounded_and_writes_without_room_are_stable(version: Version) {
    let served = Served::wire_only();
    let mut options = served.options(client::LaneMode::Off).version(version);
    options.unstable_max = 256 << 10;
    let session = client::Session::connect(&served.url(), options).await.unwrap();
    let data = pattern(3, 48 << 10);
    let mut files = Vec::new();
    for number in 0..40 {
        let file =
            session.open(format!("file-{number}").as_bytes(), &OpenOptions::replacing()).await.unwrap();
        file.write_at(&data, 0).await.unwrap();
        files.push(file);
    }
    // Five writes fit. The next one commits another file to make room.
    let commits = session.counters().calls(Operation::Commit);
    assert!((34..=40).contains(&commits), "{commits} commits");
    for file in files {
        file.close().await.unwrap();
    }
    // A write larger than the bound is stable.
    let commits = session.counters().calls(Operation::Commit);
    let file = session.open(b"large", &OpenOptions::replacing()).await.unwrap();
    let large = pattern(4, 300 << 10);
    file.write_at(&large, 0).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(session.counters().calls(Operation::Commit), commits);
    assert_eq!(on_disk(&served.export().join("large")), large);
    assert!((0..40).all(|number| on_disk(&served.export().join(format!("file-{number}"))) == data));
}

async fn a_large_directory_is_listed_completely_by_both_procedures(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let names: Vec<String> =
        (0..3000).map(|index| format!("name-{index:05}-{}", "x".repeat(index % 60))).collect();
    for name in &names {
        fs::write(served.export().join(name), b"").unwrap();
    }
    for plus in [false, true] {
        let wanted = if plus { client::Plus::All } else { client::Plus::None };
        let mut listing = session.read_dir(&session.root(), wanted);
        let mut seen = Vec::new();
        while let Some(entry) = listing.next().await.unwrap() {
            assert_eq!(entry.handle.is_some(), plus);
            assert!(!plus || entry.attributes.unwrap().kind == FileKind::Regular);
            seen.push(String::from_utf8(entry.name).unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, names);
    }
}

async fn paths_follow_links_inside_the_export_only(version: Version) {
    let served = Served::wire_only();
    let export = served.export();
    fs::create_dir_all(export.join("a/b")).unwrap();
    fs::write(export.join("a/b/file"), b"here").unwrap();
    symlink("a/b", export.join("short")).unwrap();
    symlink("../b/file", export.join("a/b/up")).unwrap();
    symlink(export.join("a"), export.join("absolute")).unwrap();
    symlink("/etc/passwd", export.join("out")).unwrap();
    symlink("round", export.join("round")).unwrap();
    let session = served.wire_by(version).await;

    let file = session.walk(b"/a/b/file", Follow::Yes).await.unwrap().handle;
    for path in [&b"short/file"[..], b"a/b/up", b"absolute/b/file", b"../../a/./b//file", b"short/../b/up"] {
        assert_eq!(session.walk(path, Follow::Yes).await.unwrap().handle, file, "{}", path.escape_ascii());
    }
    let link = session.walk(b"short", Follow::No).await.unwrap();
    assert_eq!(link.attributes.unwrap().kind, FileKind::Symlink);
    let outside = session.walk(b"out", Follow::Yes).await.unwrap_err();
    assert_eq!(outside.status(), Some(Status::NoEntry));
    let circle = session.walk(b"round", Follow::Yes).await.unwrap_err();
    assert!(matches!(circle, client::Error::Loop { .. }), "{circle}");
    let missing = session.walk(b"a/none/x", Follow::Yes).await.unwrap_err();
    assert_eq!(missing.status(), Some(Status::NoEntry));
    assert!(missing.to_string().contains("a/none/x"), "{missing}");

    let opened = session.open(b"short/up", &OpenOptions::reading()).await.unwrap();
    assert_eq!(opened.read_into(Vec::new(), 0, 100).await.unwrap(), b"here");
    let no_follow = session.open(b"short/up", &OpenOptions::reading().no_follow(true)).await.unwrap_err();
    assert!(matches!(no_follow, client::Error::Loop { .. }), "{no_follow}");
    let directory = session.open(b"a", &OpenOptions::reading()).await.unwrap_err();
    assert_eq!(directory.status(), Some(Status::IsDirectory));
}

async fn a_url_may_name_a_file_inside_an_export(version: Version) {
    let served = Served::wire_only();
    fs::create_dir(served.export().join("sub")).unwrap();
    fs::write(served.export().join("sub/file"), b"inside").unwrap();
    let base = served.url();
    let path = [base.path(), b"/sub/file"].concat();
    let options = served.options(client::LaneMode::Off).version(version);
    let session = client::Session::connect(&base.with_path(&path), options.clone()).await.unwrap();
    let file = session.open(session.target(), &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.read_into(Vec::new(), 0, 100).await.unwrap(), b"inside");

    let error = client::Session::connect(&base.with_path(b"/no/such/export"), options).await.unwrap_err();
    assert!(matches!(error, client::Error::Mount { .. }), "{error}");
    let next = if version == Version::V3 { "showmount" } else { "no such export" };
    assert!(error.to_string().contains(next), "{error}");
}

async fn whole_files_are_copied_in_and_out(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let data = pattern(3, (3 << 20) + 1);
    let local = std::sync::Arc::new(tempfile::tempfile().unwrap());
    io::write_at(&*local, &data, 0).unwrap();
    let remote = session.open(b"copy", &OpenOptions::replacing().read(true)).await.unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let options = client::CopyOptions::new().chunk(100_000).progress({
        let told = told.clone();
        move |progress| told.lock().unwrap().push(progress)
    });
    assert_eq!(client::write_to(&local, &remote, &options).await.unwrap(), data.len() as u64);
    assert_eq!(on_disk(&served.export().join("copy")), data);
    let told = told.lock().unwrap().clone();
    assert_eq!(told.len(), data.len().div_ceil(100_000));
    assert!(
        told.iter().any(|progress| progress.bytes == data.len() as u64 && progress.total == progress.bytes)
    );

    let back = std::sync::Arc::new(tempfile::tempfile().unwrap());
    let plain = client::CopyOptions::default();
    assert_eq!(client::read_from(&remote, &back, &plain).await.unwrap(), data.len() as u64);
    let mut read = vec![0; data.len() + 1];
    assert_eq!(io::read_at(&*back, &mut read, 0).unwrap(), data.len());
    assert!(read[..data.len()] == data);

    let second = session.open(b"second", &OpenOptions::replacing()).await.unwrap();
    client::copy(&remote, &second, &plain).await.unwrap();
    assert_eq!(on_disk(&served.export().join("second")), data);
}

/// Small files are read and written by the task itself, others by other threads.
async fn copies_end_where_their_source_ends(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    for chunk in [1000, 100_000] {
        let options = client::CopyOptions::new().chunk(chunk);
        for size in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 7] {
            let data = pattern(size as u64, size);
            let local = std::sync::Arc::new(tempfile::tempfile().unwrap());
            io::write_at(&*local, &data, 0).unwrap();
            let remote = session.open(b"copy", &OpenOptions::replacing().read(true)).await.unwrap();
            assert_eq!(client::write_to(&local, &remote, &options).await.unwrap(), size as u64);
            assert!(on_disk(&served.export().join("copy")) == data, "{size} bytes in chunks of {chunk}");
            let back = std::sync::Arc::new(tempfile::tempfile().unwrap());
            assert_eq!(client::read_from(&remote, &back, &options).await.unwrap(), size as u64);
            let mut read = vec![0; size + 1];
            assert_eq!(io::read_at(&*back, &mut read, 0).unwrap(), size);
            assert!(read[..size] == data, "{size} bytes in chunks of {chunk}");
        }
    }
}

async fn data_appended_during_a_copy_is_copied(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let data = pattern(5, 10_500);
    let local = std::sync::Arc::new(tempfile::tempfile().unwrap());
    io::write_at(&*local, &data[..4000], 0).unwrap();
    let remote = session.open(b"copy", &OpenOptions::replacing().read(true)).await.unwrap();
    // One request at a time: the first sees the old end, all others the new one.
    let options = client::CopyOptions::new().chunk(1000).window(1).progress({
        let (local, rest) = (local.clone(), data[4000..].to_vec());
        move |progress| {
            if progress.bytes == 1000 {
                io::write_at(&*local, &rest, 4000).unwrap();
            }
        }
    });
    assert_eq!(client::write_to(&local, &remote, &options).await.unwrap(), data.len() as u64);
    assert!(on_disk(&served.export().join("copy")) == data);
}

#[test]
fn the_blocking_api_works() {
    let served = Served::wire_only();
    let session =
        client::blocking::Session::connect(&served.url(), served.options(client::LaneMode::Off)).unwrap();
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).unwrap();
    file.write_at(b"blocking", 0).unwrap();
    file.commit().unwrap();
    let mut buffer = [0; 100];
    assert_eq!(file.read_at(&mut buffer, 5).unwrap(), 3);
    assert_eq!(&buffer[..3], b"ing");
    assert_eq!(file.size().unwrap(), 8);
    file.close().unwrap();
    let names: Vec<_> = session.read_dir(&session.session().root(), client::Plus::All).unwrap();
    assert_eq!(names.len(), 1);
}

/// NFSv4.2's operations on space, each counted, and what other versions do instead.
#[tokio::test]
async fn space_and_copies_are_the_servers_by_4_2() {
    let served = Served::wire_only();
    let data = pattern(9, 300_000);
    fs::write(served.export().join("data"), &data).unwrap();
    let session = served.wire_by(Version::V4_2).await;
    assert_eq!(session.version(), Version::V4_2);
    let from = session.open(b"data", &OpenOptions::reading()).await.unwrap();
    let to = session.open(b"copy", &OpenOptions::replacing().read(true)).await.unwrap();

    // Unstable writes of the target mustn't undo the copy, nor get lost beside it.
    to.write_at(&[7; 1000], 299_500).await.unwrap();
    assert_eq!(client::copy(&from, &to, &client::CopyOptions::new()).await.unwrap(), 300_000);
    let mut expected = data.clone();
    expected.extend([7; 500]);
    assert_eq!(on_disk(&served.export().join("copy")), expected);
    assert_eq!(session.counters().calls(Operation::Read), 0, "the data stays on the server");
    assert_eq!(from.copy_range(299_000, &to, 0, 1 << 20).await.unwrap(), 1000, "up to the end");
    assert_eq!(from.copy_range(300_000, &to, 0, 10).await.unwrap(), 0);
    let other = served.wire_by(Version::V4_2).await;
    let elsewhere = other.open(b"elsewhere", &OpenOptions::replacing()).await.unwrap();
    let error = from.copy_range(0, &elsewhere, 0, 10).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::CrossDevice), "{error}");
    assert_eq!(client::copy(&from, &elsewhere, &client::CopyOptions::new()).await.unwrap(), 300_000);
    // The scratch directory's filesystem doesn't share blocks.
    assert!(from.clone_range(0, &to, 0, 0).await.is_err());
    assert_eq!(session.counters().calls(Operation::Clone), 1);

    to.write_at(&[1; 4096], 65_536).await.unwrap();
    to.fallocate(Fallocate::PunchHole, 65_536, 131_072).await.unwrap();
    to.commit().await.unwrap();
    assert_eq!(to.seek(SeekTo::Hole, 0).await.unwrap(), Some(65_536));
    assert_eq!(to.seek(SeekTo::Data, 65_536).await.unwrap(), Some(196_608));
    assert_eq!(to.seek(SeekTo::Data, 400_000).await.unwrap(), None, "behind the end");
    to.fallocate(Fallocate::Allocate, 0, 500_000).await.unwrap();
    assert_eq!(to.size().await.unwrap(), 500_000);
    let mut hole = [1; 100];
    to.read_at(&mut hole, 70_000).await.unwrap();
    assert_eq!(hole, [0; 100]);
    assert_eq!(session.counters().calls(Operation::Allocate), 1);
    assert!(from.fallocate(Fallocate::Allocate, 0, 1).await.is_err(), "opened for reading");

    for version in [Version::V3, Version::V4_1] {
        let session = served.wire_by(version).await;
        assert_eq!(session.version(), version);
        let from = session.open(b"data", &OpenOptions::reading()).await.unwrap();
        let to = session.open(b"older", &OpenOptions::replacing()).await.unwrap();
        let error = from.copy_range(0, &to, 0, 10).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::NotSupported), "{error}");
        let error = to.fallocate(Fallocate::Allocate, 0, 10).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::NotSupported), "{error}");
        let error = session.xattr(&from.handle(), b"a").await.unwrap_err();
        assert_eq!(error.status(), Some(Status::NotSupported), "{error}");
        assert_eq!(from.seek(SeekTo::Hole, 5).await.unwrap(), Some(300_000), "all data");
        assert_eq!(from.seek(SeekTo::Data, 300_000).await.unwrap(), None);
        assert_eq!(client::copy(&from, &to, &client::CopyOptions::new()).await.unwrap(), 300_000);
        assert_eq!(on_disk(&served.export().join("older")), data);
    }
}
