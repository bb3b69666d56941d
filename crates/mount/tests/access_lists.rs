//! Access control lists, which NFSv3's attributes don't show: what one user has looked up lets no other user
//! in.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use samehost_mount::MountOptions;
use support::{Mounted, ROADS, Road, Served, shell_as};

const FRIEND: u32 = 1000;
const OUTCAST: u32 = 4321;

/// `system.posix_acl_access` of a directory that everybody may search but [`OUTCAST`]; its mode stays 0755.
fn shut_out(directory: &Path) {
    let nobody = u32::MAX;
    let entries = [(1_u16, 7_u16, nobody), (2, 0, OUTCAST), (4, 5, nobody), (16, 5, nobody), (32, 5, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(directory, "system.posix_acl_access", &bytes, flags).unwrap();
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o755);
}

fn let_in_again(directory: &Path) {
    rustix::fs::removexattr(directory, "system.posix_acl_access").unwrap();
}

fn plant(served: &Served) -> std::path::PathBuf {
    let directory = served.export().join("directory");
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::write(directory.join("file"), b"not for everybody").unwrap();
    fs::write(directory.join("below/file"), b"nor this").unwrap();
    shut_out(&directory);
    directory
}

/// Whether a user gets in, by whatever leads through the directory.
fn gets_in(mounted: &Mounted, uid: u32) -> Vec<bool> {
    [
        "cat directory/file",
        "stat directory/file",
        "cat directory/below/file",
        "ls directory/below",
        "cd directory/below",
    ]
    .map(|words| shell_as(uid, uid, "", &format!("cd {}; {words}", mounted.root().display())).1)
    .to_vec()
}

#[test]
fn what_one_user_has_looked_up_lets_no_other_in() {
    let served = Served::start();
    plant(&served);
    let without = MountOptions { acl: false, ..MountOptions::default() };
    let ways = ROADS.map(|road| (road, MountOptions::default())).into_iter().chain([(Road::Wire, without)]);
    for (road, options) in ways {
        let mounted = served.mount_with(road, options);
        // Often enough that whatever can be remembered is.
        for _ in 0..3 {
            assert_eq!(gets_in(&mounted, FRIEND), [true; 5], "{road:?}");
            assert_eq!(gets_in(&mounted, OUTCAST), [false; 5], "{road:?}");
            // The listing tells the kernel every name in it.
            assert!(shell_as(FRIEND, FRIEND, "", &format!("ls -lR {}", mounted.root().display())).1);
            assert_eq!(gets_in(&mounted, OUTCAST), [false; 5], "{road:?}: after a listing");
        }
    }
}

/// A descriptor of the directory above, from somebody who may be there, is no way in either.
#[test]
fn a_working_directory_is_no_way_round_the_list() {
    let served = Served::start();
    plant(&served);
    for road in ROADS {
        let mounted = served.mount(road);
        let script = format!(
            "cd {} && cat directory/file directory/file && \
             ! setpriv --reuid={OUTCAST} --regid={OUTCAST} --clear-groups cat directory/file",
            mounted.root().display()
        );
        let (said, ok) = shell_as(0, 0, "", &script);
        assert!(ok, "{road:?}: {said}");
    }
}

/// A list that comes or goes is noticed when the directory's attributes are, as any other change of who may
/// do what.
#[test]
fn a_list_that_comes_later_is_noticed_with_the_attributes() {
    let served = Served::start();
    let directory = plant(&served);
    for road in ROADS {
        let_in_again(&directory);
        // Names and attributes are believed no longer than this.
        let mut options = MountOptions::default();
        for time in [&mut options.attributes.directory_min, &mut options.attributes.directory_max] {
            *time = std::time::Duration::from_millis(50);
        }
        let mounted = served.mount_with(road, options);
        assert_eq!(gets_in(&mounted, OUTCAST), [true; 5], "{road:?}");
        shut_out(&directory);
        support::wait_for("the list to count", || gets_in(&mounted, OUTCAST) == [false; 5]);
        assert_eq!(gets_in(&mounted, FRIEND), [true; 5], "{road:?}");
    }
}

/// Where nobody is shut out the kernel walks by itself: no request reaches this process, let alone the
/// server.
#[test]
fn where_everybody_may_search_the_kernel_is_not_kept_from_walking() {
    let served = Served::start();
    let directory = plant(&served);
    let_in_again(&directory);
    for road in ROADS {
        // However slow this machine is, nothing is asked for again because its time is over.
        let mut options = MountOptions::default();
        for time in [&mut options.attributes.file_min, &mut options.attributes.directory_min] {
            *time = std::time::Duration::from_secs(3600);
        }
        let mounted = served.mount_with(road, options);
        let stat = || assert!(fs::symlink_metadata(mounted.path("directory/below/file")).is_ok());
        // Twice for the lists to be asked for, once more to be told the names.
        (0..3).for_each(|_| stat());
        let before = mounted.mount.report().requests;
        (0..10).for_each(|_| stat());
        assert_eq!(mounted.mount.report().requests, before, "{road:?}");
    }
}
