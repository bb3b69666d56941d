//! The parts of the library for mounted filesystems: attributes in replies, pages of directories, the granted
//! descriptor, and changes of the lane mode.

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::sync::Arc;

use parking_lot::Mutex;
use samehost_client as client;

use client::{
    AttributeSink, AttributeUpdate, Attributes, Credential, DataPath, Error, Handle, LaneMode, LaneReport,
    OpenOptions, Operation, Plus, Session, SetAttributes, Status, Version,
};
use support::{Served, pattern, wait_for};

/// Records all updates and reports.
#[derive(Debug, Default)]
struct Notebook {
    seen: Mutex<Vec<(Handle, AttributeUpdate)>>,
    lane_reports: Mutex<Vec<LaneReport>>,
}

impl AttributeSink for Notebook {
    fn attributes(&self, file: &Handle, seen: &AttributeUpdate) {
        self.seen.lock().push((file.clone(), *seen));
    }

    fn lane_changed(&self, report: &LaneReport) {
        self.lane_reports.lock().push(report.clone());
    }
}

impl Notebook {
    /// The updates since the last call, by file: whether any had attributes from before a change, and the
    /// last attributes.
    fn take_updates(&self) -> HashMap<Handle, (bool, Option<Attributes>)> {
        let mut news = HashMap::new();
        for (file, seen) in self.seen.lock().drain(..) {
            let entry: &mut (bool, Option<Attributes>) = news.entry(file).or_default();
            *entry = (entry.0 || seen.before.is_some(), seen.attributes);
        }
        news
    }
}

/// By NFSv3, whose replies have attributes from before a change.
async fn observed(served: &Served, lane: LaneMode) -> (Session, Arc<Notebook>) {
    let notebook = Arc::new(Notebook::default());
    let options = served.options(lane).version(Version::V3).attribute_sink(notebook.clone());
    (Session::connect(&served.url(), options).await.unwrap(), notebook)
}

fn true_size(served: &Served, name: &str) -> u64 {
    fs::metadata(served.export().join(name)).unwrap().size()
}

#[tokio::test]
async fn the_sink_gets_the_attributes_in_every_reply_also_of_failures() {
    let served = Served::wire_only();
    let (session, notebook) = observed(&served, LaneMode::Off).await;
    let root = session.root();
    notebook.take_updates();

    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let made = session.create(&root, b"file", &client::Create::Guarded(set)).await.unwrap();
    let news = notebook.take_updates();
    assert!(news[&root].0 && news[&root].1.is_some(), "the directory before and after");
    assert_eq!(news[&made.handle].1, made.attributes);

    let file =
        session.open_handle(&made.handle, b"file", &OpenOptions::new().read(true).write(true)).await.unwrap();
    file.write_at(b"hello", 0).await.unwrap();
    let (before, after) = notebook.take_updates()[&made.handle];
    assert!(before);
    assert_eq!(after.unwrap().size, true_size(&served, "file"));
    file.commit().await.unwrap();
    assert!(notebook.take_updates()[&made.handle].1.is_some());
    file.read_into(Vec::new(), 0, 5).await.unwrap();
    assert_eq!(notebook.take_updates()[&made.handle].1.unwrap().size, 5);

    let missing = session.lookup(&root, b"missing").await.unwrap_err();
    assert_eq!(missing.status(), Some(Status::NoEntry));
    assert!(notebook.take_updates()[&root].1.is_some(), "for a cache of names that don't exist");
    session.access(&made.handle, client::Access::READ).await.unwrap();
    assert!(notebook.take_updates()[&made.handle].1.is_some());
    session
        .set_attributes(&made.handle, &SetAttributes { size: Some(2), ..SetAttributes::default() }, None)
        .await
        .unwrap();
    let (before, after) = notebook.take_updates()[&made.handle];
    assert!(before);
    assert_eq!(after.unwrap().size, 2);

    let dir =
        session.make_dir(&root, b"dir", &SetAttributes { mode: Some(0o755), ..set }).await.unwrap().handle;
    notebook.take_updates();
    session.rename(&root, b"file", &dir, b"moved").await.unwrap();
    let news = notebook.take_updates();
    assert!(news[&root].0 && news[&dir].0, "both directories");
    session.link(&made.handle, &root, b"again").await.unwrap();
    let news = notebook.take_updates();
    assert_eq!(news[&made.handle].1.unwrap().nlink, 2);
    assert!(news[&root].0);
    let refused = session.remove_dir(&root, b"dir").await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotEmpty));
    assert!(notebook.take_updates()[&root].1.is_some());
    session.remove(&dir, b"moved").await.unwrap();
    assert!(notebook.take_updates()[&dir].0);
    session.symlink(&root, b"link", b"again", &SetAttributes::default()).await.unwrap();
    let link = session.lookup(&root, b"link").await.unwrap().handle;
    notebook.take_updates();
    session.read_link(&link).await.unwrap();
    assert!(notebook.take_updates()[&link].1.is_some());
    session.fs_stat(&root).await.unwrap();
    assert!(notebook.take_updates()[&root].1.is_some());
    session.read_dir_page(&root, (0, [0; 8]), 32 << 10, Plus::All).await.unwrap();
    let news = notebook.take_updates();
    assert!(news[&root].1.is_some() && news[&link].1.is_some() && news[&made.handle].1.is_some());
}

#[tokio::test]
async fn a_lane_open_updates_the_sink_and_a_granted_file_has_its_attributes_locally() {
    let served = Served::with_lane();
    let (session, notebook) = observed(&served, LaneMode::Required).await;
    assert!(notebook.lane_reports.lock().last().unwrap().local);
    fs::write(served.export().join("file"), b"four").unwrap();
    notebook.take_updates();
    let both = OpenOptions::new().read(true).write(true);
    let file = session.open_at(&session.root(), b"file", &both).await.unwrap();
    assert_eq!(notebook.take_updates()[&file.handle()].1, file.attributes_at_open());
    let before = session.counters();
    file.write_now(b"hello", 0).unwrap().unwrap();
    let attributes = file.attributes().await.unwrap();
    assert_eq!(attributes.size, 5);
    assert_eq!(notebook.take_updates()[&file.handle()].1, Some(attributes));
    assert_eq!(session.counters().wire.round_trips, before.wire.round_trips);
    // The server's attributes are exactly the same.
    assert_eq!(session.attributes(&file.handle()).await.unwrap(), attributes);
    // In another user namespace a new owner may have another number, which only the server knows.
    chown(served.export().join("file"), Some(7), Some(8)).unwrap();
    assert!(file.attributes_now().is_none());
    assert_eq!(file.attributes().await.unwrap().uid, 7);
}

#[tokio::test]
async fn pages_continue_at_a_cookie() {
    let served = Served::wire_only();
    for number in 0..200 {
        fs::write(served.export().join(format!("file-{number}")), b"").unwrap();
    }
    let session = served.wire_by(Version::V3).await;
    let root = session.root();
    for plus in [Plus::None, Plus::All] {
        let (mut names, mut at) = (Vec::new(), (0, [0; 8]));
        let mut pages = 0;
        loop {
            let page = session.read_dir_page(&root, at, 4096, plus).await.unwrap();
            pages += 1;
            assert!(page.entries.iter().all(|entry| {
                let name = &entry.name[..];
                (plus.is_wanted() && name != b"..") == entry.handle.is_some() || name == b".."
            }));
            at = (page.entries.last().unwrap().cookie, page.verifier);
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            if page.eof {
                break;
            }
        }
        assert!(pages > 1);
        names.sort();
        let mut expected: Vec<Vec<u8>> =
            (0..200).map(|number| format!("file-{number}").into_bytes()).collect();
        expected.extend([b".".to_vec(), b"..".to_vec()]);
        expected.sort();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn one_call_lists_several_directories_by_nfs4() {
    const COUNT: usize = 100;
    let served = Served::wire_only();
    for number in 0..COUNT {
        let directory = served.export().join(format!("{number:02}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(format!("file-{number}")), b"").unwrap();
    }
    for version in [Version::V3, Version::V4_1, Version::V4_2] {
        let session = served.wire_by(version).await;
        let root = session.root();
        let mut handles = Vec::new();
        for number in 0..COUNT {
            let found = session.lookup(&root, format!("{number:02}").as_bytes()).await.unwrap();
            handles.push(found.handle);
        }
        let mut directories: Vec<_> = handles.iter().collect();
        let before = session.counters().wire.round_trips;
        let pages = session.read_dir_first_pages(&directories, 8 << 10).await.unwrap();
        assert_eq!(session.counters().wire.round_trips - before, 1, "{version:?}");
        for (number, listed) in pages.iter().enumerate() {
            let names = listed.page.entries.iter().map(|entry| &entry.name[..]);
            let names: Vec<_> = names.filter(|name| !name.starts_with(b".")).collect();
            assert_eq!(names, [format!("file-{number}").as_bytes()], "{version:?}");
            assert!(listed.page.eof);
            let expected = session.attributes(directories[number]).await.unwrap();
            let attributes = listed.attributes.map(|attributes| (attributes.fileid, attributes.change));
            let expected = (expected.fileid, expected.change);
            assert_eq!(attributes, (version != Version::V3).then_some(expected), "{version:?}");
        }
        let some = if version == Version::V3 { 1..=1 } else { 10..=COUNT };
        assert!(some.contains(&pages.len()), "{version:?}: {}", pages.len());

        // A directory that can't be listed ends the list.
        let gone = session.make_dir(&root, b"gone", &SetAttributes::default()).await.unwrap().handle;
        session.remove_dir(&root, b"gone").await.unwrap();
        directories.insert(2, &gone);
        let pages = session.read_dir_first_pages(&directories, 8 << 10).await.unwrap();
        assert_eq!(pages.len(), if version == Version::V3 { 1 } else { 2 });
        let error = session.read_dir_first_pages(&directories[2..], 8 << 10).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::Stale), "{version:?}");
        assert!(session.read_dir_first_pages(&[], 8 << 10).await.unwrap().is_empty(), "{version:?}");
    }
}

#[tokio::test]
async fn the_granted_descriptor_has_the_access_of_the_open() {
    let served = Served::with_lane();
    let session = served.lane().await;
    fs::write(served.export().join("file"), pattern(1, 10_000)).unwrap();
    let reading = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    let copied = reading.with_granted_fd(|file| file.try_clone_to_owned().unwrap()).unwrap();
    let mut own = fs::File::from(copied);
    let mut bytes = Vec::new();
    own.read_to_end(&mut bytes).unwrap();
    assert!(bytes == pattern(1, 10_000));
    assert!(own.write_all(b"no").is_err(), "granted for reading only");
    let commits = session.counters().lane.commits;
    reading.commit().await.unwrap();
    assert_eq!(session.counters().lane.commits, commits, "nothing to sync");

    let writing = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
    let mut passed =
        fs::File::from(writing.share_granted_fd(|file| file.try_clone_to_owned().unwrap()).unwrap());
    for round in 1..=3 {
        passed.rewind().unwrap();
        passed.write_all(b"behind its back").unwrap();
        writing.commit().await.unwrap();
        assert_eq!(session.counters().lane.commits, commits + round, "a shared descriptor is always synced");
    }
    // Also after the end of the lane.
    session.set_lane_mode(LaneMode::Off);
    passed.write_all(b"still").unwrap();
    writing.commit().await.unwrap();
    assert!(session.counters().lane.commits >= commits + 4);
    assert!(writing.share_granted_fd(|_| ()).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lane_mode_changes_while_files_are_open() {
    let served = Served::with_lane();
    let (session, notebook) = observed(&served, LaneMode::Auto).await;
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap();
    let data = pattern(5, 1 << 16);
    let mut at = 0;
    let mut write = async |data_path: DataPath| {
        loop {
            let piece = &data[at % data.len()..][..64];
            file.write_at(piece, at as u64).await.unwrap();
            assert!(file.read_into(Vec::new(), at as u64, 64).await.unwrap() == piece);
            at = (at + 64) % data.len();
            if file.data_path() == data_path {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    write(DataPath::Lane).await;
    for _ in 0..3 {
        session.set_lane_mode(LaneMode::Off);
        assert_eq!(file.data_path(), DataPath::Wire);
        assert!(session.lane().reasons[0].contains("lane=off"), "{:?}", session.lane());
        let probes = session.counters().events.probes;
        write(DataPath::Wire).await;
        assert_eq!(session.counters().events.probes, probes, "there was a probe");
        session.set_lane_mode(LaneMode::Auto);
        wait_for("a lane", || session.lane().local).await;
        write(DataPath::Lane).await;
    }
    file.commit().await.unwrap();
    // The first lane, and one after each return to `Auto`. A report may come after its lane.
    let local = || notebook.lane_reports.lock().iter().filter(|report| report.local).count();
    wait_for("a report of each lane", || local() >= 4).await;
    assert_eq!(local(), 4);
    assert_eq!(session.counters().events.reconnects, 0);
    session.set_lane_mode(LaneMode::Required);
    assert!(session.open(b"file", &OpenOptions::reading()).await.is_ok());
}

/// The creator of a file may write to it even if its mode forbids that. git creates its objects so.
#[tokio::test]
async fn a_file_that_is_created_read_only_can_be_written_by_its_creator() {
    let served = Served::with_lane();
    fs::set_permissions(served.export(), fs::Permissions::from_mode(0o777)).unwrap();
    let session = served.lane().await.as_user(Credential::Sys { uid: 1000, gid: 1000, groups: vec![] });
    for (name, options) in [
        ("new", OpenOptions::new().write(true).create_new(true).mode(0o444)),
        ("made", OpenOptions::new().write(true).read(true).create(true).mode(0o400)),
    ] {
        let file = session.open_at(&session.root(), name.as_bytes(), &options).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Lane, "{name}");
        file.write_at(b"object", 0).await.unwrap();
        assert_eq!(fs::read(served.export().join(name)).unwrap(), b"object");
    }
}

#[tokio::test]
async fn a_file_that_the_lane_refuses_has_the_reason() {
    let mut served = Served::with_lane();
    fs::write(served.export().join("file"), b"wire").unwrap();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    let local = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(local.refusal(), None);
    served.reload_also(",no_lane");
    let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Wire);
    assert!(file.refusal().unwrap().contains("forbids the lane"), "{:?}", file.refusal());
    assert_eq!(session.counters().calls(Operation::Read), 0);
}

#[tokio::test]
async fn a_withdrawn_export_is_an_error_and_works_again_when_it_is_back() {
    let mut served = Served::wire_only();
    let session = served.wire().await;
    for _ in 0..2 {
        served.reload_for("192.0.2.1", "no_root_squash");
        let error = session.attributes(&session.root()).await.unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::ACCESS.raw_os_error());
        assert!(error.to_string().contains("nothing is exported to this host"), "{error}");
        served.reload_for("*", "no_root_squash");
        session.attributes(&session.root()).await.unwrap();
    }
    assert_eq!(session.counters().events.reconnects, 0);
}

/// A cancelled call leaves no state behind, whether the server replies late or never.
#[tokio::test]
async fn cancelled_calls_leave_no_state() {
    let served = Served::wire_only();
    let session = served.wire().await;
    served.freeze();
    for _ in 0..500 {
        let root = session.root();
        let call = session.attributes(&root);
        let impatient = tokio::time::timeout(std::time::Duration::from_micros(200), call).await;
        assert!(impatient.is_err(), "the server is frozen");
    }
    served.thaw();
    for _ in 0..200 {
        session.attributes(&session.root()).await.unwrap();
    }
    assert_eq!(session.counters().events.reconnects, 0);
}

#[tokio::test]
async fn a_soft_session_gives_up_with_a_timeout() {
    let served = Served::wire_only();
    let mut options = served.options(LaneMode::Off);
    (options.hard, options.retrans, options.timeo) = (false, 0, std::time::Duration::from_millis(500));
    options.retry = Some(support::BOUND);
    let session = Session::connect(&served.url(), options).await.unwrap();
    served.freeze();
    let error = session.attributes(&session.root()).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(matches!(error, Error::Rpc { .. }));
    served.thaw();
}
