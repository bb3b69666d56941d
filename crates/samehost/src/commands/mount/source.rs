//! The source of a mount: `nfs://host[:port]/path`, or `host:/path` as in mount(8) and fstab(5).

use client::Url;

use crate::exit::Failure;

/// The URL of a source. `port` is the mount option.
pub fn url(source: &str, port: Option<u16>) -> Result<Url, Failure> {
    // It is empty in samehost-mount@.service if SOURCE isn't set.
    let shown = if source.is_empty() { "the source" } else { source };
    let wrong = |reason: String| {
        Failure::usage(shown, reason)
            .next("write nfs://HOST[:PORT]/PATH or HOST:/PATH, and options behind -o")
    };
    let is_url = source.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("nfs://"));
    let url: Url = if is_url {
        if source.contains('?') {
            return Err(wrong("a mount's options don't belong into its URL".to_owned()));
        }
        source.parse().map_err(|error: client::UrlError| wrong(error.to_string()))?
    } else {
        let (host, path) =
            source.split_once(":/").ok_or_else(|| wrong("names no directory on a server".to_owned()))?;
        // An IPv6 address is in brackets because of its colons.
        let bare = host.strip_prefix('[').map_or(Some(host), |inside| inside.strip_suffix(']'));
        match bare {
            Some(bare) if !bare.is_empty() && !bare.contains(['/', '[', ']']) => {
                Url::new(bare, None, format!("/{path}").as_bytes())
            }
            _ => return Err(wrong(format!("'{host}' is no host"))),
        }
    };
    match (url.port(), port) {
        (Some(one), Some(other)) if one != other => {
            Err(wrong(format!("the URL says port {one}, and the option port={other}")))
        }
        (_, Some(port)) => Ok(url.with_port(port)),
        _ => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_the_same_url() {
        for (source, port, expected) in [
            ("nfs://host/srv", None, "nfs://host/srv"),
            ("NFS://host:7/srv", None, "nfs://host:7/srv"),
            ("nfs://host:7/srv", Some(7), "nfs://host:7/srv"),
            ("nfs://a,b:7/srv", Some(9), "nfs://a:9,b:7/srv"),
            ("host:/srv", None, "nfs://host/srv"),
            ("host:/", Some(9), "nfs://host:9/"),
            ("host:/a b%", None, "nfs://host/a%20b%25"),
            ("[::1]:/srv", Some(7), "nfs://[::1]:7/srv"),
        ] {
            assert_eq!(url(source, port).unwrap().to_string(), expected, "{source}");
        }
        for (source, port) in [
            ("/srv", None),
            ("host", None),
            ("host:srv", None),
            (":/srv", None),
            ("a/b:/srv", None),
            ("nfs://host/srv?soft", None),
            ("nfs://host:1/srv", Some(2)),
            ("nfs://", None),
            ("", None),
        ] {
            let failure = url(source, port).unwrap_err();
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{source}");
            assert!(!failure.object.is_empty() && failure.next.is_some(), "{source}");
        }
    }
}
