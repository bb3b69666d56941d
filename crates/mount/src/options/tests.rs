//! Options, read one by one and together.

use proptest::prelude::*;

use super::*;
use crate::settings::{Direct, LocalLocks, LookupCache};
use client::{Credential, LaneMode, ReservedPort};

fn read(text: &str) -> Result<Parsed, OptionError> {
    parse(text, client::Options::default(), false, false)
}

fn good(text: &str) -> Parsed {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn says(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn nothing_means_the_defaults_of_nfs() {
    for text in ["", "defaults", ",,", "rw,hard,fg,tcp,vers=3,ac,cto,nosuid,nodev,exec,async"] {
        let parsed = good(text);
        assert_eq!(parsed.mount, good("").mount, "{text}");
        assert_eq!(parsed.retry, Duration::from_secs(120));
        assert!(parsed.session.hard && !parsed.background && parsed.session.port.is_none());
        assert_eq!(parsed.session.timeo, Duration::from_secs(60));
    }
    let ordinary = good("").mount;
    assert!(!ordinary.allow_other && !ordinary.suid && !ordinary.dev && ordinary.exec);
    let root = parse("", client::Options::default(), true, false).unwrap().mount;
    assert!(root.allow_other && root.suid && !root.dev && root.exec);
    let root = parse("user,noallow_other", client::Options::default(), true, false).unwrap().mount;
    assert!(!root.allow_other && !root.suid && !root.dev && !root.exec);
}

#[test]
fn names_and_units_are_those_of_nfs() {
    let parsed =
        good("port=20490,mountport=635,rsize=65536,wsize=100000,nconnect=4,timeo=50,retrans=7,retry=3");
    assert_eq!((parsed.session.port, parsed.session.mount_port), (Some(20490), Some(635)));
    assert_eq!((parsed.session.rsize, parsed.session.wsize), (Some(65536), Some(98_304)));
    assert_eq!((parsed.session.nconnect, parsed.session.retrans), (4, 7));
    assert_eq!((parsed.session.timeo, parsed.retry), (Duration::from_secs(5), Duration::from_secs(180)));
    assert_eq!(good("rsize=1").session.rsize, Some(4096));
    assert_eq!(good("bg").retry, Duration::from_secs(600_000));
    assert_eq!(good("bg,retry=0").retry, Duration::ZERO);
    let times = good("acregmin=1,acregmax=2,acdirmin=3,acdirmax=4").mount.attributes;
    let [one, two, three, four] = [1, 2, 3, 4].map(Duration::from_secs);
    assert_eq!((times.file_min, times.file_max), (one, two));
    assert_eq!((times.directory_min, times.directory_max), (three, four));
    let all = good("acregmin=9,actimeo=2").mount.attributes;
    assert!(
        [all.file_min, all.file_max, all.directory_min, all.directory_max].iter().all(|each| *each == two)
    );
    let without = good("noac").mount;
    assert!(!without.attributes.on && without.sync);
    assert_eq!(good("lookupcache=pos").mount.lookup_cache, LookupCache::Positive);
    assert_eq!(good("lookupcache=none").mount.lookup_cache, LookupCache::None);
    let locks = |text| good(text).mount.local_locks;
    assert_eq!(locks("nolock"), LocalLocks { posix: true, flock: true });
    assert_eq!(locks("vers=4.2,nolock,lock"), LocalLocks::default());
    assert_eq!(locks("local_lock=flock,vers=4.1"), LocalLocks { posix: false, flock: true });
    assert_eq!(locks("vers=4,local_lock=posix"), LocalLocks { posix: true, flock: false });
    let soft = good("softerr");
    assert!(!soft.session.hard && soft.mount.softerr);
    let soft = good("softerr,soft");
    assert!(!soft.session.hard && !soft.mount.softerr);
    assert!(good("soft,hard").session.hard);
    assert_eq!(good("sec=none").session.credential, Credential::None);
    assert_eq!(good("noresvport").session.reserved_port, ReservedPort::No);
}

#[test]
fn options_of_our_own() {
    let parsed = good("lane=required,odirect=server,run_dir=\"/a,b\",trust_uid=7,trust_uid=7,allow_other");
    assert_eq!(parsed.session.lane, LaneMode::Required);
    assert_eq!(parsed.mount.direct, Direct::Server);
    assert_eq!(parsed.session.run_dir, std::path::Path::new("/a,b"));
    assert_eq!(parsed.session.trusted_uids, [7]);
    assert!(parsed.mount.allow_other && parsed.mount.passthrough);
    assert!(!good("nopassthrough").mount.passthrough);
    assert_eq!(good("localio_probe_throttle=64").session.probe_throttle, 64);
}

#[test]
fn the_version_is_given_by_the_names_of_nfs() {
    use client::Version;
    for (text, version) in [
        ("", Version::Highest),
        ("vers=3,vers=highest", Version::Highest),
        ("lock", Version::V4),
        ("vers=highest,local_lock=none", Version::V4),
        ("vers=3", Version::V3),
        ("nfsvers=4", Version::V4),
        ("vers=4.1", Version::V4_1),
        ("v4.2", Version::V4_2),
        ("v4.2,v3", Version::V3),
    ] {
        assert_eq!(good(text).session.version, version, "{text}");
    }
}

#[test]
fn options_of_every_filesystem() {
    let parsed =
        good("ro,nosuid,nodev,noexec,noatime,relatime,nodiratime,_netdev,nofail,noauto,x-systemd.automount");
    let mount = parsed.mount;
    assert!(mount.read_only && mount.noatime && !mount.suid && !mount.dev && !mount.exec);
    assert!(good("user=me,exec,dev").mount.exec);
    assert!(good("dev").mount.dev && good("devices").mount.dev && !good("dev,nodev").mount.dev);
    assert!(good("suid,dev").mount.suid);
    good("comment=what ever,x-a.b=c,X-mount.mkdir,defaults");
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    for (text, words) in [
        ("rsiz=4096", &["'rsiz'", "'rsize'"][..]),
        ("frobnicate", &["'frobnicate' is not known"]),
        ("vers=4.0", &["vers=4.0", "no sessions", "vers=4.1"]),
        ("vers=5", &["vers=5", "must be highest, 3, 4, 4.1 or 4.2"]),
        ("v4.0", &["'v4.0'", "v4.1"]),
        ("minorversion=1", &["minorversion=1", "vers=4.1"]),
        ("proto=udp", &["proto=udp", "proto=tcp"]),
        ("timeo=1s", &["timeo=1s", "tenths of a second"]),
        ("timeo", &["'timeo' needs a value"]),
        ("timeo=", &["'timeo' needs a value"]),
        ("ro=1", &["'ro' takes no value"]),
        ("nconnect=17", &["nconnect=17", "1 to 16"]),
        ("port=65536", &["port=65536", "0 to 65535"]),
        ("port=+5", &["port=+5"]),
        ("sec=krb5p", &["sec=krb5p", "sec=sys"]),
        ("lock,vers=3", &["'lock'", "on this host", "vers=4.2"]),
        ("vers=3,local_lock=none", &["'local_lock=none'", "on this host", "vers=4.2"]),
        ("vers=4.2,lock,vers=3", &["'lock'", "on this host", "vers=4.2"]),
        ("nocto", &["'nocto'", "Leave it out"]),
        ("lane=maybe", &["lane=maybe", "auto, off or required"]),
        ("run_dir=here", &["run_dir=here", "absolute path"]),
        ("localio_probe_throttle=12", &["power of two"]),
        ("remount,ro", &["'remount'", "Leave it out"]),
        ("run_dir=\"/a", &["quotation mark"]),
    ] {
        let said = says(text);
        for word in words {
            assert!(said.contains(word), "{text}: no {word:?} in {said:?}");
        }
    }
}

#[test]
fn sloppy_passes_over_what_is_wrong_and_says_so() {
    let parsed = good("sloppy,quota=1,timeo=x,soft");
    assert_eq!(parsed.skipped.len(), 2);
    assert!(!parsed.session.hard);
    assert_eq!(parse("quota", client::Options::default(), false, true).unwrap().skipped.len(), 1);
}

#[test]
fn every_name_is_known_and_stands_once() {
    let mut all: Vec<_> = names().collect();
    for name in &all {
        for text in [(*name).to_owned(), format!("{name}=1")] {
            assert!(!matches!(read(&text), Err(OptionError::Unknown { .. })), "{text}");
        }
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

proptest! {
    #[test]
    fn any_text_is_understood_or_refused(text in "\\PC{0,64}") {
        let _ = read(&text);
    }

    #[test]
    fn a_later_option_wins(first in 1_u32..100, second in 1_u32..100) {
        let parsed = good(&format!("timeo={first},timeo={second}"));
        prop_assert_eq!(parsed.session.timeo, Duration::from_millis(u64::from(second) * 100));
    }
}
