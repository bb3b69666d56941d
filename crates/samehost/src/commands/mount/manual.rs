//! mount.samehost(8), with the options that `samehost mount` has.

use clap_mangen::roff::{Roff, bold, italic, roman};

use super::helper::HELPER_OPTIONS;
use crate::cli::{HelpPart, put_sections};
use crate::config_file::mount::DEFAULT_FILE;

/// The file name of the page.
pub const FILE_NAME: &str = "mount.samehost.8";

const DESCRIPTION: [&str; 2] = [
    "The helper by which mount(8) mounts a directory of an NFS server with Samehost: for mount -t samehost, \
     and for entries of fstab(5) with the type samehost. SOURCE is HOST:/PATH or nfs://HOST[:PORT]/PATH. The \
     mount is that of samehost-mount(1), which describes it: a process in the background serves the \
     filesystem until it is unmounted with umount(8).",
    "mount.fuse.samehost is the same program. By that name, which the type in the mount table leads to, \
     mount(8) remounts.",
];

const FSTAB: &str = "\
fileserver:/srv   /mnt   samehost  _netdev,nofail                      0 0
fileserver:/home  /home  samehost  _netdev,noauto,x-systemd.automount  0 0";

const AFTER_FSTAB: &str = "\
If the server is on the same host, add x-systemd.after=samehost.service. Don't use x-systemd.requires=, \
which would unmount the filesystem when the server is restarted: mounts survive that. A mount that systemd \
restarts when its process dies is the unit samehost-mount@.service.";

const EXIT_STATUS: [(&str, &str); 3] = [
    ("0", "mounted"),
    ("1", "wrong invocation, or no permission"),
    ("32", "the mount failed; the reason is on standard error"),
];

/// The page.
pub fn page() -> Vec<u8> {
    let mut page = Roff::new();
    let version = format!("samehost {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["mount.samehost", "8", "", &version]);
    page.control("SH", ["NAME"]).text([roman("mount.samehost - mount a directory of an NFS server")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("mount -t samehost "),
        italic("SOURCE DIRECTORY"),
        roman(" [-o "),
        italic("OPTIONS"),
        roman("]"),
    ]);
    page.control("br", []);
    page.text([
        bold("mount.samehost "),
        italic("SOURCE DIRECTORY"),
        roman(" [-sfnv] [-o "),
        italic("OPTIONS"),
        roman("] [-t "),
        italic("TYPE"),
        roman("]"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    for (index, paragraph) in DESCRIPTION.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*paragraph)]);
    }
    page.control("SH", ["OPTIONS"]);
    put_list(&mut page, &HELPER_OPTIONS);
    let entries = mount::options::entries().collect();
    put_sections(&mut page, &[HelpPart::List { heading: "Mount options", entries }]);
    page.control("SH", ["FSTAB"]).control("nf", []).text([roman(FSTAB)]).control("fi", []);
    page.control("PP", []).text([roman(AFTER_FSTAB)]);
    page.control("SH", ["EXIT STATUS"]);
    put_list(&mut page, &EXIT_STATUS);
    page.control("SH", ["FILES"]).control("TP", []);
    page.text([italic(DEFAULT_FILE)]);
    page.text([roman("Defaults for mount options, described in samehost-mount(1).")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("samehost-mount(1), samehost-umount(1), mount(8), fstab(5), nfs(5)")]);
    page.render().into_bytes()
}

fn put_list(page: &mut Roff, entries: &[(&str, &str)]) {
    for (name, description) in entries {
        page.control("TP", []);
        page.text([bold(*name)]);
        page.text([roman(*description)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_mount_option() {
        let page = String::from_utf8(page()).unwrap();
        for (name, _) in mount::options::entries() {
            let name = name.replace('-', "\\-");
            assert!(page.contains(&format!(".TP\n\\fB{name}\\fR\n")), "{name}: {page}");
        }
    }
}
