//! Failures to open the FUSE device, with the next step. `mount` and `doctor` share the words.

use std::io;

/// The FUSE device.
pub const PATH: &str = "/dev/fuse";

/// What a failed open means, and what to do about it. `root` is whether the process has root's user id.
pub fn explain(error: &io::Error, root: bool) -> (String, &'static str) {
    match error.kind() {
        io::ErrorKind::PermissionDenied if root => (
            format!("{error}: the container doesn't permit the device"),
            "give the container the device: --device /dev/fuse",
        ),
        io::ErrorKind::PermissionDenied => (
            format!("{error}: the device is closed to this user, so no directory can be mounted on"),
            "ask an admin to open it to all users, as udev does by default (chmod 666 /dev/fuse), or to a \
             group that you are in (chgrp GROUP /dev/fuse; chmod 660 /dev/fuse). The client commands \
             (samehost ls, cp and others) don't need it",
        ),
        _ => (
            error.to_string(),
            "load the module as root (modprobe fuse); in a container, give it --device /dev/fuse",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_device_is_a_matter_for_an_admin() {
        let closed = io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
        let (reason, next) = explain(&closed, false);
        assert!(reason.contains("Permission denied") && reason.contains("closed to this user"), "{reason}");
        assert!(next.contains("ask an admin") && next.contains("chmod 666 /dev/fuse"), "{next}");
        assert!(explain(&closed, true).1.contains("--device"));
        let missing = io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
        assert!(explain(&missing, false).1.contains("modprobe fuse"));
    }
}
