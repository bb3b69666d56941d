//! READDIR and READDIRPLUS: every entry once, within the client's bounds, while the directory changes.

mod common;

use std::collections::BTreeSet;

use common::{Client, open_server};
use proto::nfs3::{
    Nfsstat3, Outcome, Procedure, Readdir3Args, Readdir3Res, Readdirplus3Args, Readdirplus3Res,
};
use xdr::Opaque;

struct Page {
    names: Vec<String>,
    cookie: u64,
    verifier: [u8; 8],
    eof: bool,
    bytes: usize,
}

fn readdir(
    client: &mut Client,
    dir: &[u8],
    cookie: u64,
    verifier: [u8; 8],
    count: u32,
) -> Result<Page, Nfsstat3> {
    let results = client
        .nfs(Procedure::Readdir, &Readdir3Args { dir: Opaque(dir), cookie, cookieverf: verifier, count });
    match results.get::<Readdir3Res<'_>>() {
        Outcome::Ok(ok) => Ok(Page {
            names: ok
                .reply
                .entries
                .0
                .iter()
                .map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap())
                .collect(),
            cookie: ok.reply.entries.0.last().map_or(cookie, |entry| entry.cookie),
            verifier: ok.head.cookieverf,
            eof: ok.reply.eof,
            bytes: results.0.len() - 4,
        }),
        Outcome::Fail(status, attributes) => {
            assert!(attributes.is_some());
            Err(status)
        }
    }
}

fn readdirplus(
    client: &mut Client,
    dir: &[u8],
    from: &Page,
    dircount: u32,
    maxcount: u32,
) -> Result<Page, Nfsstat3> {
    let args = Readdirplus3Args {
        dir: Opaque(dir),
        cookie: from.cookie,
        cookieverf: from.verifier,
        dircount,
        maxcount,
    };
    let results = client.nfs(Procedure::Readdirplus, &args);
    match results.get::<Readdirplus3Res<'_>>() {
        Outcome::Ok(ok) => {
            for entry in &ok.reply.entries.0 {
                assert_eq!(entry.name_attributes.unwrap().fileid, entry.fileid);
                assert!(entry.name_handle.is_some());
            }
            Ok(Page {
                names: ok
                    .reply
                    .entries
                    .0
                    .iter()
                    .map(|e| String::from_utf8(e.name.0.to_vec()).unwrap())
                    .collect(),
                cookie: ok.reply.entries.0.last().map_or(from.cookie, |entry| entry.cookie),
                verifier: ok.head.cookieverf,
                eof: ok.reply.eof,
                bytes: results.0.len() - 4,
            })
        }
        Outcome::Fail(status, _) => Err(status),
    }
}

const START: Page = Page { names: Vec::new(), cookie: 0, verifier: [0; 8], eof: false, bytes: 0 };

#[test]
fn ten_thousand_entries_with_removals_and_additions_in_between() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let name = |number: u32| format!("entry-{number:05}");
    for number in 0..10_000 {
        std::fs::write(scratch.at(&name(number)), "").unwrap();
    }
    let mut seen = BTreeSet::new();
    let mut twice = Vec::new();
    let mut removed = BTreeSet::new();
    let mut at = START;
    let mut next_removal = 0;
    loop {
        let page = readdir(&mut client, &root, at.cookie, at.verifier, 8192).unwrap();
        assert!(page.bytes <= 8192 && !page.names.is_empty());
        for name in &page.names {
            if !seen.insert(name.clone()) {
                twice.push(name.clone());
            }
        }
        // Remove the last entry seen, whose cookie is the next start, and one that may not have been seen.
        for name in [page.names.last().unwrap().clone(), name(next_removal)] {
            if name.starts_with("entry") && removed.insert(name.clone()) {
                let _ = std::fs::remove_file(scratch.at(&name));
            }
        }
        std::fs::write(scratch.at(&format!("new-{next_removal}")), "").unwrap();
        next_removal += 17;
        let eof = page.eof;
        at = page;
        if eof {
            break;
        }
    }
    assert!(twice.is_empty(), "{twice:?}");
    for number in 0..10_000 {
        assert!(seen.contains(&name(number)) || removed.contains(&name(number)), "{}", name(number));
    }
    assert!(seen.contains(".") && seen.contains(".."));
}

#[test]
fn replies_fill_their_limits_and_keep_to_them() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    for number in 0..500 {
        std::fs::write(scratch.at(&format!("{number:0width$}", width = 1 + number % 60)), "").unwrap();
    }
    for count in [300, 512, 1000, 4096, 8192] {
        let page = readdir(&mut client, &root, 0, [0; 8], count).unwrap();
        // The rest has no room for another entry with the longest name.
        assert!(
            page.bytes <= count as usize && (page.eof || page.bytes + 88 > count as usize),
            "{count}: {}",
            page.bytes
        );
        let page = readdirplus(&mut client, &root, &START, count, count);
        if let Ok(page) = page {
            assert!(page.bytes <= count as usize && !page.names.is_empty());
        } else {
            assert!(count < 512);
        }
    }
    let mut all = BTreeSet::new();
    let mut at = START;
    loop {
        let page = readdirplus(&mut client, &root, &at, 2000, 32_768).unwrap();
        let plain: usize = page.names.iter().map(|name| 24 + name.len().next_multiple_of(4)).sum();
        assert!(plain <= 2000, "dircount limits what READDIR would have sent");
        all.extend(page.names.iter().cloned());
        if page.eof {
            break;
        }
        at = page;
    }
    assert_eq!(all.len(), 502);
}

#[test]
fn too_small_and_bad_cookies() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    std::fs::create_dir(scratch.at("d")).unwrap();
    for count in [0, 1, 50, 100] {
        assert_eq!(readdir(&mut client, &root, 0, [0; 8], count).err(), Some(Nfsstat3::Toosmall), "{count}");
        assert_eq!(
            readdirplus(&mut client, &root, &START, 8192, count).err(),
            Some(Nfsstat3::Toosmall),
            "{count}"
        );
    }
    let page = readdir(&mut client, &root, 0, [0; 8], 8192).unwrap();
    assert!(page.eof && page.names.len() == 3);
    // After the last entry there's nothing: an empty list, not an error.
    let rest = readdir(&mut client, &root, page.cookie, page.verifier, 8192).unwrap();
    assert!(rest.eof && rest.names.is_empty());
    let wrong = page.verifier.map(|byte| byte ^ 0xff);
    assert_eq!(readdir(&mut client, &root, page.cookie, wrong, 8192).err(), Some(Nfsstat3::BadCookie));
    let other = client.lookup(&root, "d");
    assert_eq!(
        readdir(&mut client, &other, page.cookie, page.verifier, 8192).err(),
        Some(Nfsstat3::BadCookie)
    );
    assert_eq!(readdir(&mut client, &root, u64::MAX, page.verifier, 8192).err(), Some(Nfsstat3::BadCookie));
    // The largest possible limits.
    assert!(readdir(&mut client, &root, 0, [0; 8], u32::MAX).unwrap().eof);
    assert!(readdirplus(&mut client, &root, &START, u32::MAX, u32::MAX).unwrap().eof);
    assert!(
        !readdirplus(&mut client, &root, &START, 0, 8192).unwrap().names.is_empty(),
        "dircount is advice"
    );
}
