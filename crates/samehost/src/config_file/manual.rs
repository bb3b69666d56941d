//! samehost.toml(5), made of the options of `samehost serve`.

use clap_mangen::roff::{Roff, bold, italic, roman};

use super::serve::{DEFAULT_FILE, keys};

/// The file name of the page.
pub const FILE_NAME: &str = "samehost.toml.5";

const DESCRIPTION: &str = "\
The configuration of a server that was started with samehost serve --config. The file is TOML: key = value, \
one a line; # begins a comment. The keys are the long options of samehost-serve(1) and take the same values. \
The command line wins over environment variables, and these win over the file, for each option alone. \
Unknown keys and wrong values are errors: the server doesn't start, and samehost check-config reports them \
with line and column.";

const RELOAD: &str = "\
SIGHUP and samehost ctl reload read the file and the exports again. If either has an error, nothing changes. \
Changed keys that are marked below take effect. The others need a restart, and the log names those that were \
changed.";

const EXAMPLE: &str = "\
listen = [\"[::]:2049\"]
exports = [\"/etc/exports\"]
threads = 32
lane = \"files\"
nfs4-domain = \"example.org\"
no-rpcbind = true";

/// The page.
pub fn page() -> Vec<u8> {
    let mut page = Roff::new();
    let version = format!("samehost {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["samehost.toml", "5", "", &version]);
    page.control("SH", ["NAME"]).text([roman("samehost.toml - configuration of the Samehost server")]);
    page.control("SH", ["SYNOPSIS"]).text([roman(DEFAULT_FILE)]);
    page.control("SH", ["DESCRIPTION"]).text([roman(DESCRIPTION)]);
    page.control("PP", []).text([roman(RELOAD)]);
    page.control("SH", ["KEYS"]);
    for key in keys() {
        page.control("TP", []);
        page.text([bold(key.name()), roman(" = "), italic(key.value.to_string())]);
        let option = &key.option;
        let help = option.get_long_help().or_else(|| option.get_help());
        let mut paragraphs: Vec<String> =
            help.map(ToString::to_string).iter().flat_map(|help| help.split("\n\n")).map(flat).collect();
        let defaults = option.get_default_values().iter().map(|value| value.to_string_lossy());
        let default = defaults.collect::<Vec<_>>().join(", ");
        if !default.is_empty() {
            paragraphs.push(format!("Default: {default}"));
        }
        if key.is_reloadable() {
            paragraphs.push("A change takes effect at a reload.".to_owned());
        }
        for (index, paragraph) in paragraphs.iter().enumerate() {
            if index > 0 {
                page.control("IP", []);
            }
            page.text([roman(paragraph.as_str())]);
        }
    }
    page.control("SH", ["EXAMPLE"]).control("nf", []).text([roman(EXAMPLE)]).control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("samehost-serve(1), samehost-check-config(1), samehost-ctl-reload(1), exports(5)")]);
    page.render().into_bytes()
}

/// A paragraph on one line.
fn flat(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_key_with_its_default() {
        let page = String::from_utf8(page()).unwrap();
        for key in keys() {
            let name = key.name().replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{name}\\fR = ")), "{name}: {page}");
        }
        assert!(page.contains("Default: 16\n"), "{page}");
        assert_eq!(page.matches("takes effect at a reload").count(), super::super::serve::RELOADABLE.len());
    }

    #[test]
    fn the_example_is_valid() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("samehost.toml");
        std::fs::write(&path, EXAMPLE).unwrap();
        super::super::serve::ServeFile::read(&path).unwrap();
    }
}
