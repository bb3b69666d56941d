//! Properties for arbitrary texts: no panics, positions inside the text, and printing is the inverse of
//! parsing.

use proptest::prelude::*;
use samehost_exports::{Exports, NoNames};

/// Texts of random grammatical pieces, so that many are nearly valid.
fn nearly_right() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/a",
        "/b\\040c",
        "\"/q x\"",
        " ",
        "\n",
        "\\\n",
        "#",
        "*",
        "10.0.0.0/8",
        "::1",
        "host",
        "*.example.org",
        "(",
        ")",
        "rw",
        "ro",
        ",",
        "all_squash",
        "anonuid=5",
        "fsid=7",
        "no_lane",
        "tree",
        "no_tree",
        "mount_grant",
        "no_mount_grant",
        "crossmnt",
        "nohide",
        "mountpoint",
        "mp=/m\\054n",
        "refer=/a@h+[::1]:/b@i",
        "replicas=",
        "/c@d",
        "no_acl",
        "nordirplus",
        "wdelay",
        "sec=krb5",
        "sec=sys:krb5",
        "xprtsec=none:tls",
        "@group",
        "local_peers=trust",
        "all_act_as_server_user",
        "-",
        "bogus",
        "\"",
        "\\",
        "(rw,insecure)",
        "=",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn check(text: &[u8]) {
    match Exports::parse(text, "t") {
        Ok(all) => {
            let printed: String = all.list().iter().map(|export| format!("{export}\n")).collect();
            assert_eq!(Exports::parse(&printed, "again").as_ref(), Ok(&all), "{printed}");
            for export in all.list() {
                let _ = export.options_for("10.0.0.1".parse().unwrap(), &NoNames);
            }
        }
        Err(errors) => {
            let lines = text.split(|byte| *byte == b'\n').count();
            assert!(
                !errors.is_empty() && errors.iter().all(|e| (1..=lines).contains(&e.line) && e.column >= 1)
            );
        }
    }
}

proptest! {
    #[test]
    fn bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&text);
    }

    #[test]
    fn pieces(text in nearly_right()) {
        check(text.as_bytes());
    }
}
