//! The grammar of exports(5), and the positions and texts of its errors.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use samehost_exports::{ExportOptions, Exports, NoNames, Squash};

fn one(text: &str) -> samehost_exports::Export {
    let parsed = Exports::parse(text, "t").unwrap_or_else(|errors| panic!("{text:?}: {errors:?}"));
    assert_eq!(parsed.list().len(), 1, "{text:?}");
    parsed.list()[0].clone()
}

fn error(text: &str) -> String {
    let errors = Exports::parse(text, "t").expect_err(text);
    assert_eq!(errors.len(), 1, "{text:?}: {errors:?}");
    errors[0].to_string()
}

fn options(text: &str, peer: &str) -> ExportOptions {
    one(text).options_for(peer.parse::<IpAddr>().unwrap(), &NoNames).unwrap().unwrap().clone()
}

#[test]
fn lines_comments_and_continuations() {
    let text = "# all of it\n\n  /a  *(rw)  # behind\n/b \\\n\t10.0.0.0/8(rw) \\\r\n ::1\n/c\n";
    let parsed = Exports::parse(text, "t").unwrap();
    let shown: Vec<_> = parsed.list().iter().map(ToString::to_string).collect();
    let rest = "root_squash,secure,sync,no_subtree_check";
    assert_eq!(
        shown,
        [
            format!("/a *(rw,{rest})"),
            format!("/b 10.0.0.0/8(rw,{rest}) ::1(ro,{rest})"),
            format!("/c *(ro,{rest})"),
        ]
    );
    assert_eq!(Exports::parse("", "t").unwrap().list(), []);
    assert_eq!(Exports::parse("# nothing", "t").unwrap().list(), []);
    assert_eq!(Exports::parse("/a *(ro) \\", "t").unwrap_err()[0].column, 10);
}

#[test]
fn paths() {
    for (text, path) in [
        ("\"/with blank\" *", "/with blank"),
        ("/with\\040blank *", "/with blank"),
        ("/half\" quo\"ted", "/half quoted"),
        ("\"/par(en)\" *(ro)", "/par(en)"),
        ("//a///b/ *", "/a/b"),
        ("/", "/"),
        ("/hash#inside *", "/hash#inside"),
        ("/back\\slash", "/back\\slash"),
        ("/\\303\\266", "/ö"),
    ] {
        assert_eq!(one(text).path(), Path::new(path), "{text}");
    }
}

#[test]
fn defaults_apply_to_the_clients_after_them() {
    let text =
        "/a -rw,no_root_squash,insecure 10.0.0.1 10.0.0.2(ro) -anonuid=7 10.0.0.3(all_squash,async,no_lane)";
    let first = options(text, "10.0.0.1");
    assert!(!first.read_only && !first.secure && first.sync && first.lane && first.squash == Squash::None);
    assert!(options(text, "10.0.0.2").read_only);
    let third = options(text, "10.0.0.3");
    assert!(
        third.anon_uid == 7 && third.squash == Squash::All && !third.sync && !third.lane && !third.read_only
    );
    assert_eq!(options("/a (rw)", "192.0.2.9"), options("/a *(rw)", "192.0.2.9"));
    assert_eq!(options("/a", "192.0.2.9"), ExportOptions::default());
    assert_eq!(options("/a *()", "192.0.2.9"), ExportOptions::default());
    assert_eq!(options("/a *(sec=sys)", "192.0.2.9"), ExportOptions::default());
}

#[test]
fn options_after_sec_apply_to_its_flavors() {
    for (list, read_only, squash) in [
        ("sec=sys,rw", false, Squash::Root),
        ("rw,sec=sys:krb5", false, Squash::Root),
        ("sec=krb5:sys,rw,no_root_squash", false, Squash::None),
        ("sec=sys,ro,sec=krb5,rw,no_root_squash", true, Squash::Root),
        ("sec=krb5,rw,no_root_squash,sec=sys,all_squash", true, Squash::All),
        ("rw,sec=krb5p,ro,sec=sys", false, Squash::Root),
    ] {
        let parsed = options(&format!("/a *({list})"), "192.0.2.9");
        assert_eq!((parsed.read_only, parsed.squash), (read_only, squash), "{list}");
    }
    // Reserved ports are demanded by flavor, too.
    assert!(options("/a *(sec=sys,rw,sec=krb5p,rw,insecure)", "192.0.2.9").secure);
    assert!(!options("/a *(sec=sys,insecure,sec=krb5,secure)", "192.0.2.9").secure);
    // A client's list begins anew with the defaults.
    assert!(!options("/a -sec=krb5,ro *(rw,sec=sys)", "192.0.2.9").read_only);
    let said = |list: &str| {
        let ineffective = options(&format!("/a *({list})"), "192.0.2.9").ineffective;
        ineffective.iter().map(|option| option.name).collect::<Vec<_>>()
    };
    assert_eq!(said("sec=sys"), [""; 0]);
    assert_eq!(said("sec=krb5:sys,wdelay,xprtsec=tls:none"), ["wdelay", "sec=sys:krb5", "xprtsec=none:tls"]);
    assert_eq!(said("insecure_locks,pnfs,security_label,hide,acl,no_pnfs,nocrossmnt").len(), 3);
}

/// The lines that the manual page of exports(5) has as its examples.
#[test]
fn the_examples_of_the_manual_page() {
    let parsed = Exports::parse(include_str!("manual_page.exports"), "t").unwrap();
    let shown: Vec<_> = parsed.list().iter().map(ToString::to_string).collect();
    let rest = "secure,sync,no_subtree_check";
    let squashed = format!("root_squash,{rest}");
    assert_eq!(
        shown,
        [
            format!("/ master(rw,{squashed}) trusty(rw,no_root_squash,{rest})"),
            format!("/projects proj*.local.domain(rw,{squashed})"),
            format!("/usr *.local.domain(ro,{squashed}) @trusted(rw,{squashed})"),
            format!("/home/joe pc001(rw,all_squash,anonuid=150,anongid=100,{rest})"),
            "/pub *(ro,all_squash,insecure,sync,no_subtree_check)".to_owned(),
            format!("/srv/www server(rw,{squashed}) @trusted(rw,{squashed}) @external(ro,{squashed})"),
            format!("/foo 2001:db8:9:e54::/64(rw,{squashed}) 192.0.2.0/24(rw,{squashed})"),
            format!("/build buildhost[0-9].local.domain(rw,{squashed})"),
        ]
    );
}

#[test]
fn errors_have_a_position_and_a_remedy() {
    for (text, expected) in [
        ("\n/a 10.0.0.1(rw) \\\n  10.0.0.2(rw,mp=x)", "t:3:15: mountpoint=x: write an absolute path"),
        ("/a -rw,bogus *", "t:1:8: option bogus is not known: remove it; samehost-exports(5)"),
        ("/a *(squash_uids=0-15)", "t:1:6: option squash_uids=0-15 is not supported: remove it, and squash"),
        ("/a *(sec=krb5)", "t:1:6: sec=krb5: Kerberos is not supported"),
        ("/a *(ro,sec=krb5i:krb5p,rw)", "t:1:9: sec=krb5i:krb5p: Kerberos is not supported"),
        ("/a -sec=krb5 10.0.0.1(rw)", "t:1:5: sec=krb5: Kerberos is not supported"),
        ("/a *(sec=krb6:sys)", "t:1:6: \"krb6\" is none of sys, krb5"),
        ("/a *(xprtsec=mtls)", "t:1:6: xprtsec=mtls: TLS is not supported"),
        ("/a @(rw)", "t:1:4: \"@\" is not the name of a netgroup"),
        ("/a gss/krb5(rw)", "t:1:4: gss/krb5: Kerberos"),
        ("/a host (rw)", "t:1:9: a blank before '('"),
        ("/a *(rw", "t:1:5: a '(' without its ')'"),
        ("/a *(rw, sync)", "t:1:9: an empty option"),
        ("/a *(rw)x", "t:1:9: a blank is missing behind ')'"),
        ("/a *(rw)10.0.0.1", "t:1:9: a blank is missing"),
        ("/a(rw)", "t:1:1: /a(rw): write a blank"),
        ("a *(rw)", "t:1:1: \"a\" is not an absolute path"),
        ("\"\" *(rw)", "t:1:1: \"\" is not an absolute path"),
        ("/a/../b *", "t:1:1: /a/../b: write the path without . and .."),
        ("\"/a *(rw)", "t:1:1: a quote that is not closed"),
        ("/a\\000b *", "t:1:3: \\000 is not a byte"),
        ("/a\\777b *", "t:1:3: \\777 is not a byte"),
        ("/a 10.0.0.1 10.0.0.1(rw)", "t:1:13: client 10.0.0.1 is named twice"),
        ("/a 10.0.0.1\n/a 10.0.0.1(rw)", "t:2:4: /a: exported to 10.0.0.1 already"),
        ("/a *(fsid=1)\n/b *(fsid=1)", "t:2:1: /b: its fsid= is that of /a"),
        ("/a 10.0.0.1(fsid=1) 10.0.0.2(fsid=2)", "t:1:1: /a: its clients have different fsid="),
        ("/a 10.0.0.1(fsid=1)\n/a 10.0.0.2", "t:2:1: /a: exported above with another fsid="),
        ("/a *(,rw)", "t:1:6: an empty option"),
        ("/a - *", "t:1:5: an empty option"),
    ] {
        let shown = error(text);
        assert!(shown.starts_with(expected), "{text:?}\n {shown}\n {expected}");
    }
}

#[test]
fn all_mistakes_are_reported_up_to_a_limit() {
    let errors = Exports::parse("/a *(x)\n/b *(rw)\nc\n/d \"", "t").unwrap_err();
    assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(Exports::parse("x\n".repeat(1000), "t").unwrap_err().len(), 100);
    assert!(Exports::parse(" ".repeat((1 << 20) + 1), "t").is_err());
    assert!(Exports::parse(format!("/{}", "x".repeat(1024)), "t").is_err());
}

#[test]
fn lines_without_clients_are_known() {
    let without = |text: &str| Exports::parse(text, "t").unwrap().without_clients().to_vec();
    let text = "/a\n/b (rw)\n/c -ro\n/d *\n/e -ro *(rw)\n/f 10.0.0.1\n";
    assert_eq!(without(text), ["/a", "/b", "/c"].map(PathBuf::from));
    let mut all = Exports::parse("/g\n", "t").unwrap();
    all.merge(Exports::parse(text, "u").unwrap()).unwrap();
    all.unexport("/b").unwrap();
    assert_eq!(all.without_clients(), ["/g", "/a", "/c"].map(PathBuf::from));
}

#[test]
fn the_same_path_twice_and_two_texts_are_joined() {
    let mut all = Exports::parse("/a 10.0.0.1(rw)\n/a 10.0.0.2\n", "t").unwrap();
    assert_eq!(all.list()[0].clients().len(), 2);
    all.merge(Exports::parse("/a 10.0.0.3\n/b *", "u").unwrap()).unwrap();
    assert_eq!((all.list().len(), all.list()[0].clients().len()), (2, 3));
    let before = all.clone();
    assert!(all.merge(Exports::parse("/c *\n/a 10.0.0.3(rw)", "u").unwrap()).is_err());
    assert_eq!(all, before);
}
