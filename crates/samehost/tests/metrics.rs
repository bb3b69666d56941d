//! The metrics of a server: what is counted, and where it is served.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;

use common::{Server, run, samehost};

/// The server's metrics in the older text format.
fn scrape(server: &Server) -> String {
    let (_, address) = server.ready.rsplit_once("metrics at http://").expect("an address");
    let mut stream = TcpStream::connect(address.trim_end_matches("/metrics")).unwrap();
    exchange(&mut stream)
}

fn exchange(stream: &mut (impl std::io::Read + std::io::Write)) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

/// The value of a sample; 0 if it isn't there.
fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn calls_are_counted_by_export_data_path_and_procedure() {
    let server = Server::with(&["--metrics", "127.0.0.1:0"], "127.0.0.1(rw,insecure,no_root_squash)");
    fs::write(server.export().join("file"), vec![1; 5000]).unwrap();
    fs::write(server.export().join("large"), vec![1; 3 << 20]).unwrap();
    let export = server.export().display().to_string();
    let name = |metric: &str, data_path: &str, procedure: &str, more: &str| {
        let program = if data_path == "lane" { "lane" } else { "nfs3" };
        format!(
            "{metric}{{export=\"{export}\",data_path=\"{data_path}\",program=\"{program}\",\
             procedure=\"{procedure}\"{more}}}"
        )
    };
    let reads = name("samehost_calls_total", "wire", "READ", "");
    assert_eq!(value(&scrape(&server), &reads), 0.0);

    server.run(&["cat", "--vers", "3", "--lane", "off", "{}file"]).exits(0);
    // Its payload goes from the page cache to the socket.
    server.run(&["cat", "--vers", "3", "--lane", "off", "{}large"]).exits(0);
    server.run(&["stat", "--vers", "3", "--lane", "off", "{}none"]).exits(1);
    server.run(&["cat", "--lane", "required", "{}file"]).exits(0);
    // The last command's lane has been there and has ended. Scrapes close together share one text.
    let opens = name("samehost_calls_total", "lane", "OPEN", "");
    let metrics =
        wait_for(&server, |metrics| value(metrics, &opens) >= 1.0 && value(metrics, "samehost_lanes") == 0.0);
    assert_eq!(value(&metrics, &reads), server.wire_calls("READ") as f64, "{metrics}");
    let bytes = name("samehost_call_payload_bytes_total", "wire", "READ", "");
    assert_eq!(value(&metrics, &bytes), 5000.0 + (3 << 20) as f64, "{metrics}");
    let errors = name("samehost_call_errors_total", "wire", "LOOKUP", ",status=\"NOENT\"");
    assert!(value(&metrics, &errors) >= 1.0, "{metrics}");
    assert!(value(&metrics, "samehost_grants_granted_total") >= 1.0, "{metrics}");
    let served = format!("samehost_export_served{{export=\"{export}\"}}");
    assert_eq!(value(&metrics, &served), 1.0, "{metrics}");
    assert_eq!(value(&metrics, "samehost_nfs4_grace"), 0.0);

    // The first calls of a thread are timed, and each sum agrees with its buckets.
    let times: Vec<_> = metrics.lines().filter(|line| line.starts_with("samehost_call_duration_")).collect();
    let sum = |suffix: &str, only: &str| -> f64 {
        let name = format!("samehost_call_duration_seconds_{suffix}{{");
        let lines = times.iter().filter(|line| line.starts_with(&name) && line.contains(only));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    assert!(sum("count", "") >= 1.0 && sum("sum", "") > 0.0, "{metrics}");
    assert_eq!(sum("count", ""), sum("bucket", "le=\"+Inf\""), "{metrics}");
}

/// Scrapes until `ready`.
fn wait_for(server: &Server, ready: impl Fn(&str) -> bool) -> String {
    let deadline = std::time::Instant::now() + common::TIMEOUT;
    loop {
        let metrics = scrape(server);
        if ready(&metrics) {
            return metrics;
        }
        assert!(std::time::Instant::now() < deadline, "{metrics}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn metrics_are_off_by_default_and_go_to_a_unix_socket() {
    assert!(!Server::start().ready.contains("metrics"));
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("metrics");
    let mut server = Server::with(&["--metrics", socket.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    assert!(exchange(&mut UnixStream::connect(&socket).unwrap()).contains("samehost_build_info"));
    // One endpoint for each address.
    let mut second = samehost(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--run-dir"]);
    second.arg(scratch.path()).arg("--state-dir").arg(scratch.path().join("state"));
    second.args(["--export", "/tmp *(ro)", "--metrics", socket.to_str().unwrap()]);
    run(&mut second).exits(1).complains(&["metrics at ", "in use", "--metrics"]);
    server.let_go();
    assert_eq!(server.ended(), Some(0));
    assert!(!socket.exists());
}

/// Directories whose names aren't UTF-8 and look alike when they are shown as such.
#[test]
fn exports_whose_names_are_not_utf8_have_a_status_and_different_labels() {
    let scratch = tempfile::tempdir().unwrap();
    let base = scratch.path().to_str().unwrap();
    let mut args = vec!["--metrics".to_owned(), "127.0.0.1:0".to_owned()];
    for byte in [0xfe_u8, 0xff] {
        fs::create_dir(scratch.path().join(OsStr::from_bytes(&[byte]))).unwrap();
        args.extend(["--export".to_owned(), format!("{base}/\\{byte:03o} 127.0.0.1(rw,insecure)")]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let server = Server::with(&args, "127.0.0.1(rw,insecure)");
    for name in ["%FE", "%FF"] {
        server.run(&["ls", &format!("nfs://127.0.0.1:{}{base}/{name}", server.port)]).exits(0);
    }
    let shown = [format!(r"{base}/\xfe"), format!(r"{base}/\xff")];
    let status = server.status();
    let paths: Vec<_> = status["exports"].as_array().unwrap().iter().map(|export| &export["path"]).collect();
    let text = server.run(&["status"]).exits(0);
    let metrics = scrape(&server);
    for path in &shown {
        assert!(paths.iter().any(|export| *export == path), "{paths:?}");
        assert!(text.text().contains(path), "{}", text.text());
        let label = path.replace('\\', r"\\");
        assert!(metrics.contains(&format!("samehost_export_served{{export=\"{label}\"}} 1\n")), "{metrics}");
        assert!(metrics.contains(&format!("samehost_calls_total{{export=\"{label}\",")), "{metrics}");
    }
    let mut series: Vec<_> = metrics.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    series.sort_unstable();
    let count = series.len();
    series.dedup();
    assert_eq!(series.len(), count, "{metrics}");
    server.run(&["ctl", "io-mode", &shown[1], "read", "dontcache"]).exits(0);
    let status = server.status();
    let changed: Vec<_> = status["exports"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|export| export["io"]["read"] == "dontcache")
        .map(|export| export["path"].as_str().unwrap())
        .collect();
    assert_eq!(changed, [&shown[1]]);
    server.run(&["top", "--once", "--delay", "0.1"]).exits(0);
}

/// More than have counters of their own.
#[test]
fn each_configured_export_says_whether_it_is_served() {
    let scratch = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..100).map(|number| scratch.path().join(format!("export{number:02}"))).collect();
    let mut args = vec!["--metrics".to_owned(), "127.0.0.1:0".to_owned()];
    for (number, path) in paths.iter().enumerate() {
        if number != 99 {
            fs::create_dir(path).unwrap();
        }
        args.extend(["--export".to_owned(), format!("{} 127.0.0.1(rw,insecure)", path.display())]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let server = Server::with(&args, "127.0.0.1(rw,insecure)");
    let metrics = scrape(&server);
    for (number, path) in paths.iter().enumerate() {
        let served = format!("samehost_export_served{{export=\"{}\"}}", path.display());
        assert_eq!(value(&metrics, &served), if number == 99 { 0.0 } else { 1.0 }, "{number}");
    }
}
