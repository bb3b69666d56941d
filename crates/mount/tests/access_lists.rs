//! Access control lists, which NFSv3's attributes don't show: one user's cached lookups give no access to
//! another.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use client::Version;
use samehost_mount::MountOptions;
use support::{Mounted, Served, TRANSPORTS, Transport, shell_as};

const FRIEND: u32 = 1000;
const OUTCAST: u32 = 4321;

/// Sets `system.posix_acl_access` so that everybody but [`OUTCAST`] may search the directory. Its mode
/// stays 0755.
fn deny_outcast(directory: &Path) {
    set_list(directory, "system.posix_acl_access");
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o755);
}

/// Sets a list that denies [`OUTCAST`] everything, as one of the directory's two lists.
fn set_list(directory: &Path, name: &str) {
    let nobody = u32::MAX;
    let entries = [(1_u16, 7_u16, nobody), (2, 0, OUTCAST), (4, 5, nobody), (16, 5, nobody), (32, 5, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(directory, name, &bytes, flags).unwrap();
}

fn remove_list(directory: &Path) {
    rustix::fs::removexattr(directory, "system.posix_acl_access").unwrap();
}

fn create_directory(served: &Served) -> std::path::PathBuf {
    let directory = served.export().join("directory");
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::write(directory.join("file"), b"not for everybody").unwrap();
    fs::write(directory.join("below/file"), b"nor this").unwrap();
    deny_outcast(&directory);
    directory
}

/// Whether a user's accesses through the directory succeed.
fn accesses(mounted: &Mounted, uid: u32) -> Vec<bool> {
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
fn cached_lookups_of_one_user_give_no_access_to_another() {
    let served = Served::start();
    create_directory(&served);
    let without = MountOptions { acl: false, ..MountOptions::default() };
    let cases = TRANSPORTS
        .map(|transport| (transport, MountOptions::default()))
        .into_iter()
        .chain([(Transport::Wire, without)]);
    for (transport, options) in cases {
        let mounted = served.mount_with(transport, options);
        // Often enough that everything that can be cached is cached.
        for _ in 0..3 {
            assert_eq!(accesses(&mounted, FRIEND), [true; 5], "{transport:?}");
            assert_eq!(accesses(&mounted, OUTCAST), [false; 5], "{transport:?}");
            // The listing fills the kernel's cache with every name.
            assert!(shell_as(FRIEND, FRIEND, "", &format!("ls -lR {}", mounted.root().display())).1);
            assert_eq!(accesses(&mounted, OUTCAST), [false; 5], "{transport:?}: after a listing");
        }
    }
}

/// A directory that is made through the mount inherits a list, which the reply may have.
#[test]
fn a_list_that_a_new_directory_inherits_counts() {
    let served = Served::start();
    set_list(&served.export(), "system.posix_acl_default");
    for version in [Version::V3, Version::V4_2] {
        for transport in TRANSPORTS {
            let mounted = served.mount_by(version, transport, MountOptions::default());
            let script = format!("umask 022; cd {} && mkdir -p directory/below", mounted.root().display());
            assert!(shell_as(0, 0, "", &script).1);
            for name in ["file", "below/file"] {
                fs::write(mounted.path("directory").join(name), b"not for everybody").unwrap();
            }
            for _ in 0..3 {
                assert_eq!(accesses(&mounted, FRIEND), [true; 5], "{version:?}, {transport:?}");
                assert_eq!(accesses(&mounted, OUTCAST), [false; 5], "{version:?}, {transport:?}");
            }
            fs::remove_dir_all(mounted.path("directory")).unwrap();
        }
    }
}

/// A working directory inherited from a permitted user gives no access either.
#[test]
fn an_inherited_working_directory_does_not_bypass_the_list() {
    let served = Served::start();
    create_directory(&served);
    for transport in TRANSPORTS {
        let mounted = served.mount(transport);
        let script = format!(
            "cd {} && cat directory/file directory/file && \
             ! setpriv --reuid={OUTCAST} --regid={OUTCAST} --clear-groups cat directory/file",
            mounted.root().display()
        );
        let (said, ok) = shell_as(0, 0, "", &script);
        assert!(ok, "{transport:?}: {said}");
    }
}

/// A change of the list takes effect when the directory's attributes expire, as any other change of
/// permissions.
#[test]
fn a_later_list_takes_effect_with_the_attributes() {
    let served = Served::start();
    let directory = create_directory(&served);
    for transport in TRANSPORTS {
        remove_list(&directory);
        // Names and attributes are cached no longer than this.
        let mut options = MountOptions::default();
        for time in [&mut options.attributes.directory_min, &mut options.attributes.directory_max] {
            *time = std::time::Duration::from_millis(50);
        }
        let mounted = served.mount_with(transport, options);
        assert_eq!(accesses(&mounted, OUTCAST), [true; 5], "{transport:?}");
        deny_outcast(&directory);
        support::wait_for("the list to take effect", || accesses(&mounted, OUTCAST) == [false; 5]);
        assert_eq!(accesses(&mounted, FRIEND), [true; 5], "{transport:?}");
    }
}

/// In directories that everybody may search the kernel resolves paths without any request.
#[test]
fn paths_that_everybody_may_search_need_no_requests() {
    let served = Served::start();
    let directory = create_directory(&served);
    remove_list(&directory);
    for transport in TRANSPORTS {
        // Even on a slow machine nothing expires during the test.
        let mut options = MountOptions::default();
        for time in [&mut options.attributes.file_min, &mut options.attributes.directory_min] {
            *time = std::time::Duration::from_secs(3600);
        }
        let mounted = served.mount_with(transport, options);
        let stat = || assert!(fs::symlink_metadata(mounted.path("directory/below/file")).is_ok());
        // Three lookups until the lists are fetched, and one more until the names are cached.
        (0..4).for_each(|_| stat());
        let before = mounted.mount.report().kernel.requests;
        (0..10).for_each(|_| stat());
        assert_eq!(mounted.mount.report().kernel.requests, before, "{transport:?}");
    }
}
