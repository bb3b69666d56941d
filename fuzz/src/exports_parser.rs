//! A text in exports(5) syntax: errors point into the text, and a parsed table prints to text with the same
//! meaning.

use exports::{Exports, NoNames};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses `data` as such a text.
pub fn run(data: &[u8]) {
    match Exports::parse(data, "fuzz") {
        Ok(all) => {
            let printed: String = all.list().iter().map(|export| format!("{export}\n")).collect();
            assert_eq!(Exports::parse(&printed, "printed").as_ref(), Ok(&all), "{printed}");
            for export in all.list() {
                for peer in [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                    if let Ok(Some(options)) = export.options_for(peer, &NoNames) {
                        assert!(export.clients().iter().any(|client| &client.options == options));
                    }
                }
            }
        }
        Err(errors) => {
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!(!errors.is_empty());
            for error in errors {
                assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
            }
        }
    }
}
