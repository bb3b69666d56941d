//! Creation and removal of files, directories, links, pipes, sockets and devices.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use rustix::fs::{self as sys, FileType, OFlags};

use super::test_dir::{
    ANN, BEN, CAT, CLUB, TestDir, changed, chmod, create, is_there, lstat, mkdir, mode, open, tick,
    user_context,
};
use super::{checks, fails};

checks![
    a_new_file_has_the_mode_and_owner_of_its_creator,
    the_umask_clears_bits,
    an_exclusive_create_creates_or_fails,
    creating_an_existing_file_changes_only_its_size,
    creating_through_a_dangling_link_creates_the_target,
    directories_are_not_files,
    a_create_mode_applies_to_later_opens_only,
    a_set_group_directory_passes_on_its_group,
    creating_changes_the_directorys_times_and_failing_does_not,
    a_new_directory_has_two_links_and_adds_one_to_its_parent,
    existing_names_cannot_be_created,
    only_empty_directories_are_removed,
    unlink_is_for_files_and_rmdir_for_directories,
    a_symbolic_link_keeps_its_target,
    readlink_of_other_files_fails,
    a_fifo_transfers_data,
    a_socket_accepts_connections,
    a_device_keeps_its_numbers,
    only_root_makes_devices,
];

fn a_new_file_has_the_mode_and_owner_of_its_creator(base: &TestDir) {
    for (number, user) in [ANN, BEN, CAT].into_iter().enumerate() {
        let (file, dir) = (base.at(format!("file-{number}")), base.at(format!("dir-{number}")));
        let (fifo, link) = (base.at(format!("fifo-{number}")), base.at(format!("link-{number}")));
        user_context(user, || {
            create(&file, OFlags::WRONLY, 0o751).unwrap();
            mkdir(&dir, 0o750).unwrap();
            sys::mknodat(sys::CWD, &fifo, FileType::Fifo, 0o640.into(), 0).unwrap();
            sys::symlink("x", &link).unwrap();
        });
        for (path, bits) in [(&file, 0o751), (&dir, 0o750), (&fifo, 0o640), (&link, 0o777)] {
            let stat = lstat(path);
            assert_eq!((stat.st_uid, stat.st_gid), (user.uid, user.gid), "{}", path.display());
            assert_eq!(mode(path), bits, "{}", path.display());
        }
        assert_eq!(lstat(&file).st_size, 0);
    }
    create(&base.at("suid"), OFlags::WRONLY, 0o6755).unwrap();
    assert_eq!(mode(&base.at("suid")), 0o6755);
}

fn the_umask_clears_bits(base: &TestDir) {
    for (mask, file, dir) in
        [("000", 0o666, 0o777), ("022", 0o644, 0o755), ("027", 0o640, 0o750), ("777", 0, 0)]
    {
        let script = format!("umask {mask}; : >file-{mask}; mkdir dir-{mask}");
        let status = Command::new("sh").args(["-c", &script]).current_dir(base.path()).status();
        assert!(status.unwrap().success());
        assert_eq!(mode(&base.at(format!("file-{mask}"))), file);
        assert_eq!(mode(&base.at(format!("dir-{mask}"))), dir);
    }
}

fn an_exclusive_create_creates_or_fails(base: &TestDir) {
    let path = base.at("file");
    let new = create(&path, OFlags::RDWR | OFlags::EXCL, 0o600).unwrap();
    rustix::io::write(&new, b"mine").unwrap();
    fails!(create(&path, OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    fails!(create(&path, OFlags::RDWR | OFlags::EXCL | OFlags::TRUNC, 0o600), EXIST);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    sys::symlink("nowhere", base.at("link")).unwrap();
    fails!(create(&base.at("link"), OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    assert!(!is_there(&base.at("nowhere")));
    mkdir(&base.at("dir"), 0o755).unwrap();
    fails!(create(&base.at("dir"), OFlags::RDWR | OFlags::EXCL, 0o600), EXIST);
    let stat = lstat(&path);
    assert_eq!((mode(&path), stat.st_uid), (0o600, 0));
    // Its time stamps are times, not the verifier of an exclusive create.
    assert!((stat.st_mtime - stat.st_ctime).abs() <= 2 && stat.st_mtime > 1_600_000_000);
}

fn creating_an_existing_file_changes_only_its_size(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o646);
    user_context(BEN, || {
        create(&path, OFlags::WRONLY, 0o600).unwrap();
        assert_eq!(lstat(&path).st_size, 8);
        create(&path, OFlags::WRONLY | OFlags::TRUNC, 0o600).unwrap();
    });
    let stat = lstat(&path);
    assert_eq!((stat.st_uid, mode(&path), stat.st_size), (ANN.uid, 0o646, 0));
}

fn creating_through_a_dangling_link_creates_the_target(base: &TestDir) {
    sys::symlink("target", base.at("link")).unwrap();
    let fd = create(&base.at("link"), OFlags::WRONLY, 0o644).unwrap();
    rustix::io::write(&fd, b"there").unwrap();
    drop(fd);
    assert_eq!(fs::read(base.at("target")).unwrap(), b"there");
}

fn directories_are_not_files(base: &TestDir) {
    let dir = base.at("dir");
    mkdir(&dir, 0o755).unwrap();
    fails!(open(&dir, OFlags::WRONLY), ISDIR);
    fails!(open(&dir, OFlags::RDWR), ISDIR);
    fails!(create(&dir, OFlags::RDONLY, 0o644), ISDIR);
    let fd = open(&dir, OFlags::RDONLY).unwrap();
    fails!(rustix::io::read(&fd, &mut [0; 10][..]), ISDIR);
}

fn a_create_mode_applies_to_later_opens_only(base: &TestDir) {
    user_context(ANN, || {
        let path = base.at("secret");
        let fd = create(&path, OFlags::RDWR, 0).unwrap();
        rustix::io::write(&fd, b"written").unwrap();
        let mut bytes = [0; 7];
        rustix::io::pread(&fd, &mut bytes[..], 0).unwrap();
        assert_eq!(&bytes, b"written");
        fails!(open(&path, OFlags::RDONLY), ACCESS);
        fails!(open(&path, OFlags::WRONLY), ACCESS);
        let path = base.at("object");
        let fd = create(&path, OFlags::WRONLY | OFlags::EXCL, 0o444).unwrap();
        rustix::io::write(&fd, b"as git does").unwrap();
        drop(fd);
        fails!(open(&path, OFlags::WRONLY), ACCESS);
        assert_eq!(fs::read(&path).unwrap(), b"as git does");
    });
}

fn a_set_group_directory_passes_on_its_group(base: &TestDir) {
    let dir = base.dir_of("dir", ANN, 0o777);
    super::test_dir::chown(&dir, None, Some(CLUB)).unwrap();
    chmod(&dir, 0o2777).unwrap();
    let (file, sub) = (dir.join("file"), dir.join("sub"));
    user_context(BEN, || {
        create(&file, OFlags::WRONLY, 0o644).unwrap();
        mkdir(&sub, 0o755).unwrap();
    });
    assert_eq!((lstat(&file).st_uid, lstat(&file).st_gid, mode(&file)), (BEN.uid, CLUB, 0o644));
    assert_eq!((lstat(&sub).st_uid, lstat(&sub).st_gid, mode(&sub)), (BEN.uid, CLUB, 0o2755));
}

fn creating_changes_the_directorys_times_and_failing_does_not(base: &TestDir) {
    let dir = base.path();
    let mut last = changed(dir);
    let mut check = |what: &str, expected: bool| {
        let now = changed(dir);
        assert_eq!(now.0 > last.0 && now.1 > last.1, expected, "{what}");
        last = now;
        tick();
    };
    tick();
    create(&base.at("file"), OFlags::WRONLY, 0o644).unwrap();
    check("create", true);
    create(&base.at("file"), OFlags::WRONLY, 0o644).unwrap();
    check("opening what exists", false);
    fails!(create(&base.at("file"), OFlags::EXCL, 0o644), EXIST);
    check("failed create", false);
    mkdir(&base.at("dir"), 0o755).unwrap();
    check("mkdir", true);
    fails!(mkdir(&base.at("dir"), 0o755), EXIST);
    check("failed mkdir", false);
    sys::symlink("x", base.at("symlink")).unwrap();
    check("symlink", true);
    sys::link(base.at("file"), base.at("link")).unwrap();
    check("link", true);
    sys::unlink(base.at("link")).unwrap();
    check("unlink", true);
    fails!(sys::unlink(base.at("link")), NOENT);
    check("failed unlink", false);
    sys::rmdir(base.at("dir")).unwrap();
    check("rmdir", true);
    fs::write(base.at("file"), b"more").unwrap();
    check("writing a file", false);
}

fn a_new_directory_has_two_links_and_adds_one_to_its_parent(base: &TestDir) {
    let before = lstat(base.path()).st_nlink;
    mkdir(&base.at("dir"), 0o755).unwrap();
    assert_eq!(lstat(&base.at("dir")).st_nlink, 2);
    assert_eq!(lstat(base.path()).st_nlink, before + 1);
    mkdir(&base.at("dir/sub"), 0o755).unwrap();
    assert_eq!(lstat(&base.at("dir")).st_nlink, 3);
    base.file("file", 0o644, b"");
    assert_eq!(lstat(base.path()).st_nlink, before + 1);
    sys::rmdir(base.at("dir/sub")).unwrap();
    sys::rmdir(base.at("dir")).unwrap();
    assert_eq!(lstat(base.path()).st_nlink, before);
}

fn existing_names_cannot_be_created(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    base.file("file", 0o644, b"");
    sys::symlink("nowhere", base.at("link")).unwrap();
    for name in ["dir", "file", "link"] {
        fails!(mkdir(&base.at(name), 0o755), EXIST);
        fails!(sys::symlink("x", base.at(name)), EXIST);
        fails!(sys::link(base.at("file"), base.at(name)), EXIST);
        fails!(sys::mknodat(sys::CWD, base.at(name), FileType::Fifo, 0o644.into(), 0), EXIST);
    }
}

fn only_empty_directories_are_removed(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    base.file("dir/file", 0o644, b"");
    fails!(sys::rmdir(base.at("dir")), NOTEMPTY | EXIST);
    sys::unlink(base.at("dir/file")).unwrap();
    sys::rmdir(base.at("dir")).unwrap();
    fails!(sys::lstat(base.at("dir")), NOENT);
}

fn unlink_is_for_files_and_rmdir_for_directories(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    base.file("file", 0o644, b"");
    sys::symlink("dir", base.at("link")).unwrap();
    fails!(sys::unlink(base.at("dir")), ISDIR | PERM);
    fails!(sys::rmdir(base.at("file")), NOTDIR);
    fails!(sys::rmdir(base.at("link")), NOTDIR);
    sys::unlink(base.at("link")).unwrap();
    assert!(is_there(&base.at("dir")), "the link was removed, its target wasn't");
}

fn a_symbolic_link_keeps_its_target(base: &TestDir) {
    let long = "x/".repeat(500);
    for (name, target) in
        [("a", "target"), ("b", "../.././/odd/./path"), ("c", "/"), ("d", &long), ("e", "\u{fc} \n")]
    {
        sys::symlink(target, base.at(name)).unwrap();
        assert_eq!(sys::readlink(base.at(name), Vec::new()).unwrap().as_bytes(), target.as_bytes());
        let stat = lstat(&base.at(name));
        assert_eq!(stat.st_size as usize, target.len());
        assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::Symlink);
        assert_eq!(stat.st_nlink, 1);
    }
}

fn readlink_of_other_files_fails(base: &TestDir) {
    base.file("file", 0o644, b"");
    fails!(sys::readlink(base.at("file"), Vec::new()), INVAL);
    fails!(sys::readlink(base.path(), Vec::new()), INVAL);
}

fn a_fifo_transfers_data(base: &TestDir) {
    let path = base.at("pipe");
    sys::mknodat(sys::CWD, &path, FileType::Fifo, 0o644.into(), 0).unwrap();
    assert_eq!(FileType::from_raw_mode(lstat(&path).st_mode), FileType::Fifo);
    fails!(open(&path, OFlags::WRONLY | OFlags::NONBLOCK), NXIO);
    std::thread::scope(|scope| {
        scope
            .spawn(|| fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"through").unwrap());
        let mut text = String::new();
        fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    });
    assert_eq!(lstat(&path).st_size, 0);
}

fn a_socket_accepts_connections(base: &TestDir) {
    // The address of a Unix socket has at most 108 bytes: a short path through /proc.
    let dir = open(base.path(), OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    let short = std::path::PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()));
    let listener = UnixListener::bind(&short).unwrap();
    assert_eq!(FileType::from_raw_mode(lstat(&base.at("socket")).st_mode), FileType::Socket);
    let mut client = UnixStream::connect(&short).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    server.read_exact(&mut bytes).unwrap();
    fails!(open(&base.at("socket"), OFlags::RDONLY), NXIO);
    fails!(UnixListener::bind(&short).map_err(|e| rustix::io::Errno::from_io_error(&e).unwrap()), ADDRINUSE);
}

fn a_device_keeps_its_numbers(base: &TestDir) {
    for (name, kind, device) in [
        ("char", FileType::CharacterDevice, sys::makedev(1, 3)),
        ("block", FileType::BlockDevice, sys::makedev(7, 300)),
    ] {
        sys::mknodat(sys::CWD, base.at(name), kind, 0o600.into(), device).unwrap();
        let found = fs::symlink_metadata(base.at(name)).unwrap();
        assert_eq!(found.rdev(), device, "{name}");
        assert_eq!(FileType::from_raw_mode(found.mode()), kind);
        user_context(ANN, || fails!(open(&base.at(name), OFlags::RDONLY), ACCESS));
    }
}

fn only_root_makes_devices(base: &TestDir) {
    user_context(ANN, || {
        let device = sys::makedev(1, 3);
        fails!(sys::mknodat(sys::CWD, base.at("d"), FileType::CharacterDevice, 0o600.into(), device), PERM);
        sys::mknodat(sys::CWD, base.at("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
    });
    assert!(!is_there(&base.at("d")));
}
