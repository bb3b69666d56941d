//! samehost-exports(5), made of the options that the parser of exports(5) knows.

use clap_mangen::roff::{Roff, bold, italic, roman};
use exports::reference::OPTIONS;

/// The file name of the page.
pub const FILE_NAME: &str = "samehost-exports.5";

const SYNOPSIS: &str = "/etc/exports, /etc/exports.d/*.exports";

const DESCRIPTION: [&str; 4] = [
    "The directories that samehost serve exports, and to whom. The syntax is that of exports(5): an exports \
     file of the Linux kernel's server starts this one without changes. Each line has a directory and its \
     clients, and behind each client, without a blank, its options in parentheses. Options behind a dash \
     (-) are defaults for the clients after it. A backslash at the end of a line continues it, # begins a \
     comment, and special characters in names are quoted (\"/a b\") or written as three octal digits \
     (/a\\040b).",
    "A directory's path may lead through symbolic links. They are followed when the exports are read, unless \
     they lie in a directory that is exported for writing: its clients would choose what is exported. \
     Clients mount the directory by the path as written and by its own path. Of two lines that lead to the \
     same directory the first is served.",
    "A client is a host by name or address, a network (192.0.2.0/24, 192.0.2.0/255.255.255.0, \
     2001:db8::/32), a pattern of *, ? and [...] for host names, a netgroup (@group, netgroup(5)), or * for \
     everybody. Where several entries match a client, a host wins over a network, a network over a pattern, \
     a pattern over a netgroup and a netgroup over *. Of one kind the first entry wins.",
    "Mistakes are errors with line and column, and the server doesn't start, or keeps the exports that it \
     has. So are options that it can't honour and without which it would serve more than the line says. \
     Other options without effect are accepted, and each is named once when the server starts.",
];

const EXAMPLE: &str = "\
# Everybody may read, hosts of the office may write.
/srv/pub      *(ro,all_squash,insecure) 192.0.2.0/24(rw)
/srv/home     -rw,no_subtree_check @workstations build[0-9].example.org
/srv/archive  *(ro,mountpoint,no_lane)";

/// The page.
pub fn page() -> Vec<u8> {
    let mut page = Roff::new();
    let version = format!("samehost {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["samehost-exports", "5", "", &version]);
    page.control("SH", ["NAME"])
        .text([roman("samehost-exports - exported directories of the Samehost server")]);
    page.control("SH", ["SYNOPSIS"]).text([roman(SYNOPSIS)]);
    page.control("SH", ["DESCRIPTION"]);
    for (index, paragraph) in DESCRIPTION.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*paragraph)]);
    }
    page.control("SH", ["OPTIONS"]);
    page.text([roman("The Linux kernel's server is called knfsd here.")]);
    for option in OPTIONS {
        page.control("TP", []);
        if option.value.is_empty() {
            page.text([bold(option.name)]);
        } else {
            page.text([bold(format!("{}=", option.name)), italic(option.value)]);
        }
        let knfsd = if option.knfsd.is_empty() { "no such option" } else { option.knfsd };
        page.text([italic("knfsd: "), roman(format!("{knfsd}."))]);
        page.control("br", []);
        page.text([italic("samehost: "), roman(format!("{}.", option.ours))]);
    }
    page.control("SH", ["EXAMPLE"]).control("nf", []).text([roman(EXAMPLE)]).control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("samehost-serve(1), samehost-exports(1), exports(5), netgroup(5)")]);
    page.render().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_option_with_both_meanings() {
        let page = String::from_utf8(page()).unwrap();
        assert_eq!(page.matches("samehost: ").count(), OPTIONS.len());
        assert_eq!(page.matches("knfsd: ").count(), OPTIONS.len());
    }

    #[test]
    fn the_example_is_valid() {
        exports::Exports::parse(EXAMPLE, "example").unwrap();
    }
}
