//! Making files, directories, links, pipes, sockets and devices.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use rustix::fs::{self as sys, FileType, OFlags};

use super::place::{
    ANN, BEN, CAT, CLUB, Place, changed, chmod, create, is_there, look, mkdir, mode, open, tick, user_context,
};
use super::{checks, fails};

checks![
    a_new_file_has_the_mode_and_the_owner_of_its_maker,
    the_umask_takes_bits_away,
    an_exclusive_create_makes_or_fails,
    creating_what_exists_changes_nothing_but_its_length,
    creating_through_a_dangling_link_makes_the_target,
    directories_are_not_files,
    a_mode_binds_later_opens_and_not_this_one,
    a_set_group_directory_hands_its_group_down,
    making_touches_the_directory_and_failing_does_not,
    a_new_directory_has_two_links_and_adds_one,
    directories_exist_only_once,
    only_empty_directories_are_removed,
    files_and_directories_are_removed_each_its_way,
    a_symbolic_link_says_what_it_was_told,
    reading_what_is_no_link,
    a_pipe_carries_bytes,
    a_socket_is_listened_on,
    a_device_keeps_its_numbers,
    only_root_makes_devices,
];

fn a_new_file_has_the_mode_and_the_owner_of_its_maker(place: &Place) {
    for (number, user) in [ANN, BEN, CAT].into_iter().enumerate() {
        let (file, dir) = (place.at(format!("file-{number}")), place.at(format!("dir-{number}")));
        let (fifo, link) = (place.at(format!("fifo-{number}")), place.at(format!("link-{number}")));
        user_context(user, || {
            create(&file, OFlags::WRONLY, 0o751).unwrap();
            mkdir(&dir, 0o750).unwrap();
            sys::mknodat(sys::CWD, &fifo, FileType::Fifo, 0o640.into(), 0).unwrap();
            sys::symlink("x", &link).unwrap();
        });
        for (path, bits) in [(&file, 0o751), (&dir, 0o750), (&fifo, 0o640), (&link, 0o777)] {
            let stat = look(path);
            assert_eq!((stat.st_uid, stat.st_gid), (user.uid, user.gid), "{}", path.display());
            assert_eq!(mode(path), bits, "{}", path.display());
        }
        assert_eq!(look(&file).st_size, 0);
    }
    create(&place.at("suid"), OFlags::WRONLY, 0o6755).unwrap();
    assert_eq!(mode(&place.at("suid")), 0o6755);
}

fn the_umask_takes_bits_away(place: &Place) {
    for (mask, file, dir) in
        [("000", 0o666, 0o777), ("022", 0o644, 0o755), ("027", 0o640, 0o750), ("777", 0, 0)]
    {
        let script = format!("umask {mask}; : >file-{mask}; mkdir dir-{mask}");
        let status = Command::new("sh").args(["-c", &script]).current_dir(place.path()).status();
        assert!(status.unwrap().success());
        assert_eq!(mode(&place.at(format!("file-{mask}"))), file);
        assert_eq!(mode(&place.at(format!("dir-{mask}"))), dir);
    }
}

fn an_exclusive_create_makes_or_fails(place: &Place) {
    let path = place.at("file");
    let new = create(&path, OFlags::RDWR | OFlags::EXCL, 0o600).unwrap();
    rustix::io::write(&new, b"mine").unwrap();
    fails!(create(&path, OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    fails!(create(&path, OFlags::RDWR | OFlags::EXCL | OFlags::TRUNC, 0o600), EXIST);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    sys::symlink("nowhere", place.at("link")).unwrap();
    fails!(create(&place.at("link"), OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    assert!(!is_there(&place.at("nowhere")));
    mkdir(&place.at("dir"), 0o755).unwrap();
    fails!(create(&place.at("dir"), OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    let stat = look(&path);
    assert_eq!((mode(&path), stat.st_uid), (0o600, 0));
    // Its times are times, and not something else that was put there.
    assert!((stat.st_mtime - stat.st_ctime).abs() <= 2 && stat.st_mtime > 1_600_000_000);
}

fn creating_what_exists_changes_nothing_but_its_length(place: &Place) {
    let path = place.file_of("file", ANN, 0o646);
    user_context(BEN, || {
        create(&path, OFlags::WRONLY, 0o600).unwrap();
        assert_eq!(look(&path).st_size, 8);
        create(&path, OFlags::WRONLY | OFlags::TRUNC, 0o600).unwrap();
    });
    let stat = look(&path);
    assert_eq!((stat.st_uid, mode(&path), stat.st_size), (ANN.uid, 0o646, 0));
}

fn creating_through_a_dangling_link_makes_the_target(place: &Place) {
    sys::symlink("target", place.at("link")).unwrap();
    let fd = create(&place.at("link"), OFlags::WRONLY, 0o644).unwrap();
    rustix::io::write(&fd, b"there").unwrap();
    drop(fd);
    assert_eq!(fs::read(place.at("target")).unwrap(), b"there");
}

fn directories_are_not_files(place: &Place) {
    let dir = place.at("dir");
    mkdir(&dir, 0o755).unwrap();
    fails!(open(&dir, OFlags::WRONLY), ISDIR);
    fails!(open(&dir, OFlags::RDWR), ISDIR);
    fails!(create(&dir, OFlags::RDONLY, 0o644), ISDIR);
    let fd = open(&dir, OFlags::RDONLY).unwrap();
    fails!(rustix::io::read(&fd, &mut [0; 10][..]), ISDIR);
}

fn a_mode_binds_later_opens_and_not_this_one(place: &Place) {
    user_context(ANN, || {
        let path = place.at("secret");
        let fd = create(&path, OFlags::RDWR, 0).unwrap();
        rustix::io::write(&fd, b"written").unwrap();
        let mut bytes = [0; 7];
        rustix::io::pread(&fd, &mut bytes[..], 0).unwrap();
        assert_eq!(&bytes, b"written");
        fails!(open(&path, OFlags::RDONLY), ACCESS);
        fails!(open(&path, OFlags::WRONLY), ACCESS);
        let path = place.at("object");
        let fd = create(&path, OFlags::WRONLY | OFlags::EXCL, 0o444).unwrap();
        rustix::io::write(&fd, b"as git does").unwrap();
        drop(fd);
        fails!(open(&path, OFlags::WRONLY), ACCESS);
        assert_eq!(fs::read(&path).unwrap(), b"as git does");
    });
}

fn a_set_group_directory_hands_its_group_down(place: &Place) {
    let dir = place.dir_of("dir", ANN, 0o777);
    super::place::chown(&dir, None, Some(CLUB)).unwrap();
    chmod(&dir, 0o2777).unwrap();
    let (file, sub) = (dir.join("file"), dir.join("sub"));
    user_context(BEN, || {
        create(&file, OFlags::WRONLY, 0o644).unwrap();
        mkdir(&sub, 0o755).unwrap();
    });
    assert_eq!((look(&file).st_uid, look(&file).st_gid, mode(&file)), (BEN.uid, CLUB, 0o644));
    assert_eq!((look(&sub).st_uid, look(&sub).st_gid, mode(&sub)), (BEN.uid, CLUB, 0o2755));
}

fn making_touches_the_directory_and_failing_does_not(place: &Place) {
    let dir = place.path();
    let mut last = changed(dir);
    let mut touched = |what: &str, yes: bool| {
        let now = changed(dir);
        assert_eq!(now.0 > last.0 && now.1 > last.1, yes, "{what}");
        last = now;
        tick();
    };
    tick();
    create(&place.at("file"), OFlags::WRONLY, 0o644).unwrap();
    touched("create", true);
    create(&place.at("file"), OFlags::WRONLY, 0o644).unwrap();
    touched("opening what exists", false);
    fails!(create(&place.at("file"), OFlags::EXCL, 0o644), EXIST);
    touched("failed create", false);
    mkdir(&place.at("dir"), 0o755).unwrap();
    touched("mkdir", true);
    fails!(mkdir(&place.at("dir"), 0o755), EXIST);
    touched("failed mkdir", false);
    sys::symlink("x", place.at("symlink")).unwrap();
    touched("symlink", true);
    sys::link(place.at("file"), place.at("link")).unwrap();
    touched("link", true);
    sys::unlink(place.at("link")).unwrap();
    touched("unlink", true);
    fails!(sys::unlink(place.at("link")), NOENT);
    touched("failed unlink", false);
    sys::rmdir(place.at("dir")).unwrap();
    touched("rmdir", true);
    fs::write(place.at("file"), b"more").unwrap();
    touched("writing a file", false);
}

fn a_new_directory_has_two_links_and_adds_one(place: &Place) {
    let before = look(place.path()).st_nlink;
    mkdir(&place.at("dir"), 0o755).unwrap();
    assert_eq!(look(&place.at("dir")).st_nlink, 2);
    assert_eq!(look(place.path()).st_nlink, before + 1);
    mkdir(&place.at("dir/sub"), 0o755).unwrap();
    assert_eq!(look(&place.at("dir")).st_nlink, 3);
    place.file("file", 0o644, b"");
    assert_eq!(look(place.path()).st_nlink, before + 1);
    sys::rmdir(place.at("dir/sub")).unwrap();
    sys::rmdir(place.at("dir")).unwrap();
    assert_eq!(look(place.path()).st_nlink, before);
}

fn directories_exist_only_once(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    place.file("file", 0o644, b"");
    sys::symlink("nowhere", place.at("link")).unwrap();
    for name in ["dir", "file", "link"] {
        fails!(mkdir(&place.at(name), 0o755), EXIST);
        fails!(sys::symlink("x", place.at(name)), EXIST);
        fails!(sys::link(place.at("file"), place.at(name)), EXIST);
        fails!(sys::mknodat(sys::CWD, place.at(name), FileType::Fifo, 0o644.into(), 0), EXIST);
    }
}

fn only_empty_directories_are_removed(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    place.file("dir/file", 0o644, b"");
    fails!(sys::rmdir(place.at("dir")), NOTEMPTY | EXIST);
    sys::unlink(place.at("dir/file")).unwrap();
    sys::rmdir(place.at("dir")).unwrap();
    fails!(sys::lstat(place.at("dir")), NOENT);
}

fn files_and_directories_are_removed_each_its_way(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    place.file("file", 0o644, b"");
    sys::symlink("dir", place.at("link")).unwrap();
    fails!(sys::unlink(place.at("dir")), ISDIR | PERM);
    fails!(sys::rmdir(place.at("file")), NOTDIR);
    fails!(sys::rmdir(place.at("link")), NOTDIR);
    sys::unlink(place.at("link")).unwrap();
    assert!(is_there(&place.at("dir")), "the link went, and not where it pointed");
}

fn a_symbolic_link_says_what_it_was_told(place: &Place) {
    let long = "x/".repeat(500);
    for (name, target) in
        [("a", "target"), ("b", "../.././/odd/./path"), ("c", "/"), ("d", &long), ("e", "\u{fc} \n")]
    {
        sys::symlink(target, place.at(name)).unwrap();
        assert_eq!(sys::readlink(place.at(name), Vec::new()).unwrap().as_bytes(), target.as_bytes());
        let stat = look(&place.at(name));
        assert_eq!(stat.st_size as usize, target.len());
        assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::Symlink);
        assert_eq!(stat.st_nlink, 1);
    }
}

fn reading_what_is_no_link(place: &Place) {
    place.file("file", 0o644, b"");
    fails!(sys::readlink(place.at("file"), Vec::new()), INVAL);
    fails!(sys::readlink(place.path(), Vec::new()), INVAL);
}

fn a_pipe_carries_bytes(place: &Place) {
    let path = place.at("pipe");
    sys::mknodat(sys::CWD, &path, FileType::Fifo, 0o644.into(), 0).unwrap();
    assert_eq!(FileType::from_raw_mode(look(&path).st_mode), FileType::Fifo);
    fails!(open(&path, OFlags::WRONLY | OFlags::NONBLOCK), NXIO);
    std::thread::scope(|scope| {
        scope
            .spawn(|| fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"through").unwrap());
        let mut text = String::new();
        fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    });
    assert_eq!(look(&path).st_size, 0);
}

fn a_socket_is_listened_on(place: &Place) {
    // The address of a Unix socket has 108 bytes: go there first.
    let dir = open(place.path(), OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    let short = std::path::PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()));
    let listener = UnixListener::bind(&short).unwrap();
    assert_eq!(FileType::from_raw_mode(look(&place.at("socket")).st_mode), FileType::Socket);
    let mut client = UnixStream::connect(&short).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    server.read_exact(&mut bytes).unwrap();
    fails!(open(&place.at("socket"), OFlags::RDONLY), NXIO);
    fails!(UnixListener::bind(&short).map_err(|e| rustix::io::Errno::from_io_error(&e).unwrap()), ADDRINUSE);
}

fn a_device_keeps_its_numbers(place: &Place) {
    for (name, kind, device) in [
        ("char", FileType::CharacterDevice, sys::makedev(1, 3)),
        ("block", FileType::BlockDevice, sys::makedev(7, 300)),
    ] {
        sys::mknodat(sys::CWD, place.at(name), kind, 0o600.into(), device).unwrap();
        let found = fs::symlink_metadata(place.at(name)).unwrap();
        assert_eq!(found.rdev(), device, "{name}");
        assert_eq!(FileType::from_raw_mode(found.mode()), kind);
        user_context(ANN, || fails!(open(&place.at(name), OFlags::RDONLY), ACCESS));
    }
}

fn only_root_makes_devices(place: &Place) {
    user_context(ANN, || {
        let device = sys::makedev(1, 3);
        fails!(sys::mknodat(sys::CWD, place.at("d"), FileType::CharacterDevice, 0o600.into(), device), PERM);
        sys::mknodat(sys::CWD, place.at("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
    });
    assert!(!is_there(&place.at("d")));
}
