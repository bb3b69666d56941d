//! Debian's Prometheus with our metrics: what promtool says of them, a scrape, alert rules that fire, and
//! that the dashboard and the rules use metrics that exist.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use samehost_tests::{Daemon, Mount, Scratch, Serve, Server, need_root, run, run_ok, wait_for};
use serde_json::Value;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn rules() -> String {
    fs::read_to_string(packaging().join("prometheus/samehost.rules.yml")).expect("the rules")
}

/// A directory's name with characters that are escaped in a label.
const ODD: &str = r#"odd"\"#;

/// A server with metrics.
struct Monitored {
    address: SocketAddr,
    _server: Server,
    _exports: Scratch,
}

/// A server with calls and errors to show. One of its exports is missing, and one has a name that must be
/// escaped.
fn server() -> Monitored {
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    fs::write(export.join("file"), vec![1; 100_000]).expect("own directory");
    scratch.mkdir(ODD);
    let [missing, odd] =
        ["missing", r"odd\042\134"].map(|name| format!("{} 127.0.0.1(ro)", scratch.join(name).display()));
    let server = Serve::openly(&export).export(missing).export(odd);
    let server = server.arguments(["--metrics", "127.0.0.1:0"]).start();
    for (name, succeeds) in [("file", true), ("none", false)] {
        let url = server.url(export.join(name));
        let output = server.client(&["cat", "--lane", "off", &url]).output().expect("the command runs");
        assert_eq!(output.status.success(), succeeds, "{output:?}");
    }
    let log = server.daemon().log();
    let (_, address) = log.split_once("metrics at http://").expect("an address");
    let (address, _) = address.split_once("/metrics").expect("a path");
    Monitored { address: address.parse().expect("an address"), _server: server, _exports: scratch }
}

/// The body of a reply; `None` if there is no server yet.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    exchange(TcpStream::connect(address).ok()?, path)
}

fn exchange(mut stream: impl Read + Write, path: &str) -> Option<String> {
    // Version 1.0 has no chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// Checks names, types and helps of metrics.
fn check(metrics: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    promtool.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let server = server();
    let metrics = get(server.address, "/metrics").expect("metrics");
    assert!(metrics.contains(r#"/odd\"\\"} 1"#), "{metrics}");
    check(&metrics);
}

#[test]
fn each_alert_rule_fires_for_its_series() {
    let scratch = Scratch::new();
    fs::write(scratch.join("samehost.rules.yml"), rules()).expect("own directory");
    let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus/rules.test.yml");
    fs::copy(test, scratch.join("rules.test.yml")).expect("own directory");
    run_ok(Command::new("promtool").arg("check").arg("rules").arg(scratch.join("samehost.rules.yml")));
    let tested = run_ok(Command::new("promtool").args(["test", "rules"]).arg(scratch.join("rules.test.yml")));
    let expected = fs::read_to_string(scratch.join("rules.test.yml")).expect("the test");
    for rule in rules().lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(expected.contains(&format!("alertname=\"{rule}\"")), "{rule} isn't tested: {tested}");
    }
}

/// Names of metrics in a text.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("samehost_")).collect()
}

#[test]
fn dashboard_and_rules_use_metrics_that_exist() {
    let server = server();
    let metrics = get(server.address, "/metrics").expect("metrics");
    let exist = metric_names(&metrics);
    let dashboard = fs::read_to_string(packaging().join("grafana/samehost.json")).expect("the dashboard");
    serde_json::from_str::<Value>(&dashboard).expect("the dashboard is JSON");
    let rules = rules();
    for text in [&dashboard, &rules] {
        let used = metric_names(text);
        let missing: Vec<_> = used.difference(&exist).collect();
        assert!(used.len() > 10 && missing.is_empty(), "{missing:?}");
    }
}

/// Prometheus on a free port. A port that was free may be taken before Prometheus listens on it.
fn prometheus(scratch: &Scratch, config: &Path) -> (Daemon, SocketAddr) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", scratch.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let log = scratch.join("prometheus.log");
        let mut daemon = Daemon::start("prometheus", &mut command, &log).expect("prometheus can be started");
        let is_ready = wait_for("Prometheus", || {
            if !daemon.alive() {
                return Some(false);
            }
            get(address, "/-/ready").map(|_| true)
        });
        if is_ready {
            return (daemon, address);
        }
        assert!(daemon.log().contains("address already in use"), "{}", daemon.log());
    }
}

#[test]
fn prometheus_scrapes_and_an_alert_fires() {
    let server = server();
    let scratch = Scratch::new();
    // The alert without its minute of patience.
    fs::write(scratch.join("rules.yml"), rules().replace("for: 1m", "for: 0s")).expect("own directory");
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 200ms}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: samehost\n    static_configs: [{{targets: \
         ['{}']}}]\n",
        server.address
    );
    let path = scratch.join("prometheus.yml");
    fs::write(&path, config).expect("own directory");
    let (_prometheus, api) = prometheus(&scratch, &path);
    let json = |path: &str| -> Value {
        get(api, path).and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
    };
    wait_for("a scrape", || {
        (json("/api/v1/query?query=up")["data"]["result"][0]["value"][1] == "1").then_some(())
    });
    let query = "/api/v1/query?query=samehost_calls_total%7Bprocedure=%22READ%22%7D";
    wait_for("the number of READs", || {
        let value = json(query)["data"]["result"][0]["value"][1].clone();
        (value.as_str()?.parse::<f64>().ok()? >= 1.0).then_some(())
    });
    let alert = wait_for("the alert", || {
        let alerts = json("/api/v1/alerts")["data"]["alerts"].clone();
        let firing = |alert: &&Value| alert["state"] == "firing";
        alerts.as_array()?.iter().find(firing).cloned()
    });
    assert_eq!(alert["labels"]["alertname"], "SamehostExportNotServed", "{alert}");
    assert!(
        alert["annotations"]["summary"].as_str().is_some_and(|text| text.contains("/missing on ")),
        "{alert}"
    );
}

#[test]
fn a_mount_has_an_endpoint_of_its_own() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    fs::write(export.join("file"), "data").expect("own directory");
    let server = Serve::openly(&export).start();
    let socket = scratch.join("metrics");
    let options = format!("metrics={}", socket.display());
    let mount = Mount::new(&server, &export, &options);
    assert_eq!(fs::read(mount.join("file")).expect("the file"), b"data");
    let scrape =
        || exchange(UnixStream::connect(&socket).expect("the endpoint"), "/metrics").expect("metrics");
    let metrics = scrape();
    let local = format!("samehost_mount_local{{mountpoint=\"{}\"}} 1\n", mount.path().display());
    assert!(metrics.contains(&local), "{metrics}");
    assert!(metrics.contains("# TYPE samehost_mount_requests_total counter\n"), "{metrics}");
    assert!(metrics.contains("# TYPE samehost_mount_io_read_bytes_total counter\n"), "{metrics}");
    check(&metrics);

    // An address that is in use fails the mount.
    let second = Mount::unmounted(&server);
    let output = run(&mut second.command(&server.url(&export), &options));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("metrics at "), "{output:?}");
    assert!(!second.is_mounted());
    mount.unmount();
    wait_for("the end of the endpoint", || (!socket.exists()).then_some(()));
}

#[test]
fn a_mounts_io_has_histograms_by_data_path() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    for (data_path, options) in [("wire", "lane=off"), ("lane", "lane=required,nopassthrough")] {
        let socket = scratch.join(data_path);
        let mount = Mount::new(&server, &export, &format!("{options},metrics={}", socket.display()));
        let path = mount.join(data_path);
        let file = fs::File::create_new(&path).expect("a new file");
        // More than one WRITE takes, because fsync(2) sends a single one as FILE_SYNC, without a COMMIT.
        let mut data = vec![1; 3 << 20];
        (&file).write_all(&data).and_then(|()| file.sync_all()).expect("written");
        // Not from the mount's page cache.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise(2)");
        fs::File::open(&path).expect("the file").read_exact(&mut data).expect("read");
        drop(file);
        let metrics =
            exchange(UnixStream::connect(&socket).expect("the endpoint"), "/metrics").expect("metrics");
        check(&metrics);
        for operation in ["read", "write", "commit"] {
            let labels = format!(
                "mountpoint=\"{}\",data_path=\"{data_path}\",operation=\"{operation}\"",
                mount.path().display()
            );
            let value = |sample: &str| -> f64 {
                let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
                line.unwrap_or_else(|| panic!("no {sample} in {metrics}")).parse().expect("a number")
            };
            let count = value(&format!("samehost_mount_io_duration_seconds_count{{{labels}}}"));
            let all = value(&format!("samehost_mount_io_duration_seconds_bucket{{le=\"+Inf\",{labels}}}"));
            let sum = value(&format!("samehost_mount_io_duration_seconds_sum{{{labels}}}"));
            assert!(count >= 1.0 && all == count && sum > 0.0, "{operation}: {metrics}");
        }
        mount.unmount();
    }
}
