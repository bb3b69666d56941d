//! What an NFSv4 session holds at its server: opens, and their recovery.

mod support;

use samehost_client as client;

use client::{DataPath, LaneMode, OpenOptions, Operation, Session, Version};
use support::{Served, by_each_version, on_disk, wait_for};

by_each_version! {
    #[tokio::test]
    an_open_costs_one_call_and_reads_the_file,
}

mod v4 {
    use super::*;

    #[tokio::test]
    async fn an_open_file_stays_without_its_name() {
        for version in [Version::V4_1, Version::V4_2] {
            let served = Served::wire_only();
            let session = served.wire_by(version).await;
            an_open_keeps(&served, &session).await;
        }
    }

    #[tokio::test]
    async fn opens_outlive_a_killed_server() {
        let mut served = Served::wire_only();
        let session = served.wire_by(Version::V4_2).await;
        std::fs::write(served.export().join("kept"), b"0123456789").unwrap();
        let reader = session.open(b"kept", &OpenOptions::reading()).await.unwrap();
        let writer = session.open(b"kept", &OpenOptions::new().write(true)).await.unwrap();
        let new = session.open(b"new", &OpenOptions::replacing().read(true).mode(0o400)).await.unwrap();
        new.write_at(b"before", 0).await.unwrap();
        for _ in 0..2 {
            served.kill();
            served.restart();
            // The first request finds out, and waits until everything is reclaimed.
            session.null().await.unwrap();
            session.attributes(&session.root()).await.unwrap();
            writer.write_at(b"ab", 3).await.unwrap();
            new.write_at(b"after!", 0).await.unwrap();
            writer.commit().await.unwrap();
            new.commit().await.unwrap();
            assert_eq!(on_disk(&served.export().join("kept")), b"012ab56789");
            assert_eq!(on_disk(&served.export().join("new")), b"after!");
        }
        // The server has the open again: otherwise the file would be gone with its name.
        let other = served.wire_by(Version::V4_1).await;
        other.remove(&other.root(), b"kept").await.unwrap();
        let mut buffer = [0; 10];
        assert_eq!(reader.read_at(&mut buffer, 0).await.unwrap(), 10);
        assert_eq!(&buffer, b"012ab56789");
    }

    /// As a mount and the one that was unmounted before it, whose process hasn't ended. The clients have
    /// different connections.
    #[tokio::test]
    async fn clients_of_one_id_at_the_same_time_leave_each_other_their_state() {
        let served = Served::wire_only();
        std::fs::write(served.export().join("file"), b"0123456789").unwrap();
        let options = |connections| {
            let options = served.options(LaneMode::Off).version(Version::V4_2).nconnect(connections);
            options.unique_id("the mount point".to_owned())
        };
        let mut sessions = Vec::new();
        for connections in 1..=2 {
            let session = Session::connect(&served.url(), options(connections)).await.unwrap();
            let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
            sessions.push((session, file));
        }
        let mut buffer = [0; 10];
        for (session, file) in sessions.iter().chain(&sessions) {
            let before = session.counters().wire.round_trips;
            assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), 10);
            assert_eq!(session.counters().wire.round_trips, before + 1, "nothing was to be recovered");
        }
    }

    #[tokio::test]
    async fn a_file_is_closed_when_nothing_of_the_user_has_it_open() {
        let served = Served::wire_only();
        let session = served.wire_by(Version::V4_2).await;
        std::fs::write(served.export().join("file"), b"hello").unwrap();
        let calls = |operation| session.counters().calls(operation);
        let first = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        let second = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
        drop(first);
        // The server is told what is left.
        wait_for("the downgrade", || calls(Operation::Close) == 1).await;
        second.write_at(b"H", 0).await.unwrap();
        second.close().await.unwrap();
        wait_for("the close", || calls(Operation::Close) == 2).await;
        assert_eq!(on_disk(&served.export().join("file")), b"Hello");
        // All state is gone, so the client id can be destroyed: another session with the same owner begins
        // at once.
        session.close().await;
    }

    #[tokio::test]
    async fn files_are_closed_together_and_before_their_removal() {
        const FILES: usize = 60;
        let served = Served::wire_only();
        let session = served.wire_by(Version::V4_2).await;
        let calls = |operation| session.counters().calls(operation);
        let new = OpenOptions::new().write(true).create_new(true);
        let name = |number: usize| format!("file-{number}").into_bytes();
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(session.open(&name(number), &new).await.unwrap());
        }
        drop(files);
        session.remove(&session.root(), &name(0)).await.unwrap();
        assert!(calls(Operation::Close) >= 1);
        let again = session.open(&name(1), &OpenOptions::reading()).await.unwrap();
        again.read_at(&mut [0; 1], 0).await.unwrap();
        drop(again);
        // All state is gone, so another session of the same client begins at once.
        session.clone().close().await;
        assert!(calls(Operation::Close) <= 8, "{}", calls(Operation::Close));
    }

    /// Files are opened again, locked and replaced while their CLOSEs wait.
    #[tokio::test]
    async fn closes_that_wait_close_nothing_that_came_later() {
        const FILES: usize = 60;
        let served = Served::wire_only();
        let session = served.wire_by(Version::V4_2).await;
        let name = |number: usize| format!("file-{number}").into_bytes();
        let both = OpenOptions::new().read(true).write(true).create(true);
        let mut again = Vec::new();
        for round in 0..4 {
            for number in 0..FILES {
                drop(session.open(&name(number), &both).await.unwrap());
                if number % 4 == round {
                    again.push((number, session.open(&name(number), &both).await.unwrap()));
                }
            }
        }
        for (number, file) in &again {
            file.write_at(&number.to_be_bytes(), 0).await.unwrap();
        }
        let root = session.root();
        session.rename(&root, b"file-1", &root, b"file-2").await.unwrap();
        drop(session.open(b"file-3", &both).await.unwrap());
        session.remove(&root, b"file-3").await.unwrap();
        for (number, file) in &again {
            let mut buffer = [0; 8];
            assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), 8, "{number}");
            assert_eq!(buffer, number.to_be_bytes());
        }
        drop(again);
        session.close().await;
    }

    /// A server that restarts has nothing to close for the client.
    #[tokio::test]
    async fn closes_that_wait_during_a_restart_end() {
        const FILES: usize = 400;
        let mut served = Served::wire_only();
        let session = served.wire_by(Version::V4_2).await;
        let new = OpenOptions::new().write(true).create_new(true);
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(session.open(format!("file-{number}").as_bytes(), &new).await.unwrap());
        }
        let kept = files.pop();
        served.freeze();
        drop(files);
        served.kill();
        served.restart();
        kept.as_ref().unwrap().write_at(b"kept", 0).await.unwrap();
        assert_eq!(on_disk(&served.export().join(format!("file-{}", FILES - 1))), b"kept");
        drop(kept);
        session.clone().close().await;
        let closes = session.counters().calls(Operation::Close);
        assert!(closes <= 4, "{closes}");
    }

    #[tokio::test]
    async fn a_file_that_was_opened_over_the_lane_is_opened_over_the_wire_when_that_ends() {
        let mut served = Served::with_lane();
        let options = served.options(LaneMode::Auto).version(Version::V4_2);
        let session = Session::connect(&served.url(), options).await.unwrap();
        std::fs::write(served.export().join("file"), b"hello").unwrap();
        let file = session.open(b"file", &OpenOptions::new().read(true).write(true)).await.unwrap();
        let mut buffer = [0; 5];
        file.read_at(&mut buffer, 0).await.unwrap();
        assert_eq!(session.counters().calls(Operation::Open), 0, "the grant is counted as an open");
        served.forbid_lane();
        served.restart();
        wait_for("the end of the lane", || file.data_path() == DataPath::Wire).await;
        file.write_at(b"J", 0).await.unwrap();
        file.commit().await.unwrap();
        assert_eq!(session.counters().calls(Operation::Open), 1);
        assert_eq!(on_disk(&served.export().join("file")), b"Jello");
    }

    async fn an_open_keeps(served: &Served, session: &Session) {
        let file = session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap();
        file.write_at(b"some text", 0).await.unwrap();
        std::fs::remove_file(served.export().join("file")).unwrap();
        file.write_at(b"S", 0).await.unwrap();
        file.commit().await.unwrap();
        let mut buffer = [0; 9];
        assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), 9);
        assert_eq!(&buffer, b"Some text");
        file.set_len(4).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 4);
    }
}

async fn an_open_costs_one_call_and_reads_the_file(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    std::fs::create_dir(served.export().join("dir")).unwrap();
    std::fs::write(served.export().join("dir/file"), b"hello").unwrap();
    std::os::unix::fs::symlink("dir/file", served.export().join("link")).unwrap();
    let directory = session.lookup(&session.root(), b"dir").await.unwrap().handle;
    let round_trips = || session.counters().wire.round_trips;
    let before = round_trips();
    let file = session.open_at(&directory, b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(round_trips() - before, 1);
    assert_eq!(file.attributes_at_open().unwrap().size, 5);
    let mut buffer = [0; 5];
    file.read_at(&mut buffer, 0).await.unwrap();
    assert_eq!(&buffer, b"hello");
    let before = round_trips();
    let made = OpenOptions::new().write(true).create(true);
    let new = session.open_at(&directory, b"new", &made).await.unwrap();
    assert_eq!(round_trips() - before, 1);
    assert_eq!(new.attributes_at_open().unwrap().size, 0);
    // By a symbolic link, and what can't be opened.
    let linked = session.open(b"link", &OpenOptions::reading()).await.unwrap();
    assert_eq!(linked.handle(), file.handle());
    let refused = session.open(b"dir", &OpenOptions::reading()).await.unwrap_err();
    assert_eq!(refused.status(), Some(client::Status::IsDirectory));
    let refused = session.open(b"nothing", &OpenOptions::reading()).await.unwrap_err();
    assert_eq!(refused.status(), Some(client::Status::NoEntry));
}
