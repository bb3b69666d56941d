//! The HTTP endpoint of the metrics: formats, and peers that break rules or take their time.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use samehost_control::MetricKind;
use samehost_control::exposition::{
    Collector, DescriptorEncoder, HistogramSample, MetricsAddress, MetricsEndpoint, Registry, family,
    histogram,
};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Some metrics, with as many series as it says.
#[derive(Debug)]
struct Some(u64);

impl Collector for Some {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = (0..self.0).map(|number| (vec![("export", format!("/a \"{number}\"\n"))], number));
        family(&mut encoder, "samehost_calls", "Calls.", MetricKind::Counter, samples)?;
        family(&mut encoder, "samehost_now", "Now.", MetricKind::Gauge, [(vec![], 7)])?;
        let sample = HistogramSample { sum: 0.5, buckets: vec![(0.001, 2), (f64::INFINITY, 1)] };
        histogram(&mut encoder, "samehost_seconds", "Times.", [(vec![("op", "READ".to_owned())], sample)])
    }
}

fn start(address: &str, series: u64) -> MetricsEndpoint {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Some(series)));
    MetricsEndpoint::start(&address.parse().unwrap(), registry).unwrap()
}

fn address(endpoint: &MetricsEndpoint) -> SocketAddr {
    match endpoint.address() {
        MetricsAddress::Tcp(address) => *address,
        MetricsAddress::Unix(path) => panic!("{path:?}"),
    }
}

fn connect(endpoint: &MetricsEndpoint) -> TcpStream {
    let stream = TcpStream::connect(address(endpoint)).unwrap();
    stream.set_read_timeout(Option::Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Option::Some(TIMEOUT)).unwrap();
    stream
}

/// What the endpoint sends until it closes the connection; a reset ends it, too.
fn rest(mut stream: impl Read) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn exchange(endpoint: &MetricsEndpoint, request: &str) -> String {
    let mut stream = connect(endpoint);
    stream.write_all(request.as_bytes()).unwrap();
    rest(stream)
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn both_formats_are_served() {
    let endpoint = start("127.0.0.1:0", 1);
    let older = exchange(&endpoint, GET);
    assert!(older.starts_with("HTTP/1.1 200 OK\r\n"), "{older}");
    assert!(older.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{older}");
    let body = "# HELP samehost_calls_total Calls.\n# TYPE samehost_calls_total counter\n\
                samehost_calls_total{export=\"/a \\\"0\\\"\\n\"} 0\n# HELP samehost_now Now.\n";
    assert!(older.contains(body), "{older}");
    assert!(older.contains("samehost_seconds_bucket{le=\"+Inf\",op=\"READ\"} 3\n"), "{older}");
    let accept = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
    let open = exchange(&endpoint, accept);
    assert!(open.contains("# TYPE samehost_calls counter\n") && open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn other_requests_are_errors() {
    let endpoint = start("127.0.0.1:0", 1);
    let status = |request: &str| exchange(&endpoint, request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(status("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(
        status("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 405 Method \
        Not Allowed"
    );
    assert_eq!(status("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert!(status("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("200 OK"));
}

#[test]
fn long_heads_are_refused() {
    let endpoint = start("127.0.0.1:0", 1);
    let mut stream = connect(&endpoint);
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    // A head without an end. The endpoint closes the connection long before this one is sent.
    let field = format!("X: {}\r\n", "x".repeat(1000));
    let sent = (0..100_000).take_while(|_| stream.write_all(field.as_bytes()).is_ok()).count();
    assert!(sent < 100_000);
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100));
    let answer = exchange(&endpoint, &many);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(exchange(&endpoint, GET).contains("200 OK"));
}

#[test]
fn slow_peers_do_not_keep_a_scrape_out() {
    // More than the buffers of a connection hold.
    let endpoint = start("127.0.0.1:0", 200_000);
    let silent: Vec<_> = (0..40).map(|_| connect(&endpoint)).collect();
    let readers: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(&endpoint);
            stream.write_all(GET.as_bytes()).unwrap();
            stream
        })
        .collect();
    let body = exchange(&endpoint, GET);
    assert!(body.contains("200 OK") && body.contains("samehost_now 7\n"), "{}", body.len());
    // The oldest connections were closed for newer ones.
    assert_eq!(silent.into_iter().next().map(rest), Option::Some(String::new()));
    drop(readers);
}

#[test]
fn a_silent_connection_ends() {
    let endpoint = start("127.0.0.1:0", 1);
    let mut stream = connect(&endpoint);
    stream.write_all(b"GET /metr").unwrap();
    let answer = rest(stream);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_unix_socket_replaces_a_dead_one_and_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("metrics");
    // A socket without a listener remains of a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let endpoint = start(path.to_str().unwrap(), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Option::Some(TIMEOUT)).unwrap();
    stream.write_all(GET.as_bytes()).unwrap();
    assert!(rest(stream).contains("200 OK"));
    let second = MetricsEndpoint::start(&MetricsAddress::Unix(path.clone()), Registry::default());
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(endpoint);
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_dead_socket_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let [file, link, dead] = ["file", "link", "dead"].map(|name| scratch.path().join(name));
    std::fs::write(&file, "kept").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    std::os::unix::fs::symlink(&dead, &link).unwrap();
    for taken in [&file, &link] {
        let started = MetricsEndpoint::start(&MetricsAddress::Unix(taken.clone()), Registry::default());
        assert_eq!(started.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    assert!(link.is_symlink() && dead.exists());
    // What replaces the socket of an endpoint isn't the endpoint's to remove.
    let endpoint = start(dead.to_str().unwrap(), 1);
    std::fs::rename(&file, &dead).unwrap();
    drop(endpoint);
    assert_eq!(std::fs::read_to_string(&dead).unwrap(), "kept");
}

/// A process that listens, and whose queue of connections is full, is alive.
#[test]
fn a_socket_whose_process_hangs_is_in_use() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("metrics");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    let started = MetricsEndpoint::start(&MetricsAddress::Unix(path.clone()), Registry::default());
    assert_eq!(started.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert!(path.exists());
}

#[test]
fn addresses_are_parsed() {
    for wrong in ["", "9464", "localhost:1", "relative/path"] {
        assert!(wrong.parse::<MetricsAddress>().is_err(), "{wrong}");
    }
    let tcp: MetricsAddress = "[::1]:9464".parse().unwrap();
    assert_eq!(tcp.to_string(), "http://[::1]:9464/metrics");
}
