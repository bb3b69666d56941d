//! The HTTP endpoint: `GET /metrics`, on TCP or a Unix socket, served by one thread.
//!
//! The peers aren't trusted. Connections, the length of a request's head and the time of a connection are
//! bounded. When all connections are taken, a new one displaces the oldest, so that slow peers can't keep a
//! scrape out. Scrapes that follow each other quickly share one text.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use rustix::fs::{Access, AtFlags, CWD, Mode, accessat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle as Task;

use super::text::Format;
use crate::directory::remove_dead_socket;

/// The most connections at the same time.
const MAX_CONNECTIONS: usize = 16;
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// The most header fields of a request.
const MAX_FIELDS: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take from its beginning to its end.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the text of a scrape is given to others, too. Frequent scrapes cost little then.
const SHARED_FOR: Duration = Duration::from_millis(250);
/// The pause after a failed accept(2), for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The length of the kernel's queue of connections.
const BACKLOG: i32 = 16;

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// An address and a port; port 0 picks a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket that its user and its group can connect to. It replaces a socket there that
    /// no process listens on.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let address = text.parse().map_err(|_| {
            format!(
                "{text:?}: write an address and a port, such as 127.0.0.1:9464, or the absolute path of a \
                     Unix socket"
            )
        })?;
        Ok(Self::Tcp(address))
    }
}

impl MetricsAddress {
    /// Checks whether an endpoint can listen here, and changes nothing. That another process listens here is
    /// no error: it may be an endpoint of the same configuration.
    ///
    /// # Errors
    /// As [`MetricsEndpoint::start`].
    pub fn check(&self) -> io::Result<()> {
        let path = match self {
            Self::Tcp(address) => {
                return match TcpListener::bind(address) {
                    Err(error) if error.kind() != io::ErrorKind::AddrInUse => Err(error),
                    _ => Ok(()),
                };
            }
            Self::Unix(path) => path,
        };
        let directory = match path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        let (_address, _directory) = lane::run_dir::address(path)?;
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => Err(Errno::ADDRINUSE.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The collectors, and the text of the last scrape.
struct Scrapes {
    registry: Registry,
    last: Mutex<Option<Scrape>>,
}

/// A scrape, for others that come within [`SHARED_FOR`].
struct Scrape {
    at: Instant,
    format: Format,
    text: Bytes,
}

impl Scrapes {
    fn text(&self, format: Format) -> Result<Bytes, fmt::Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.format == format
            && last.at.elapsed() < SHARED_FOR
        {
            return Ok(last.text.clone());
        }
        let text = Bytes::from(format.render(&self.registry)?);
        *last = Some(Scrape { at: Instant::now(), format, text: text.clone() });
        Ok(text)
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A running endpoint. Dropping it ends its connections and removes its Unix socket.
#[derive(Debug)]
pub struct MetricsEndpoint {
    address: MetricsAddress,
    /// Removed with the endpoint.
    _file: Option<SocketFile>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsEndpoint {
    /// Listens and starts the thread. Scrapes ask the collectors of `registry` on that thread.
    ///
    /// # Errors
    /// When the address can't be listened on, or the thread can't be started.
    pub fn start(address: &MetricsAddress, registry: Registry) -> io::Result<Self> {
        let (listener, address, file) = match address {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = MetricsAddress::Tcp(listener.local_addr()?);
                (Listener::Tcp(listener), address, None)
            }
            MetricsAddress::Unix(path) => {
                let (listener, file) = listen_unix(path)?;
                (Listener::Unix(listener), address.clone(), Some(file))
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            runtime.block_on(async {
                let scrapes = Arc::new(Scrapes { registry, last: Mutex::new(None) });
                tokio::select! {
                    // The sender is dropped when the endpoint is.
                    _ = stopped => {}
                    Err(error) = serve(listener, &scrapes) => {
                        tracing::error!(%error, "metrics are not served");
                    }
                }
            });
        })?;
        Ok(Self { address, _file: file, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the real port.
    #[must_use]
    pub const fn address(&self) -> &MetricsAddress {
        &self.address
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A Unix socket's file, by which it is known again.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_this = |found: &Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        // Another process may have put something else there.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| is_this(&found)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A listening socket with mode 0660. It never has a wider one.
fn listen_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_dead_socket(path)?;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, mode)?;
    let (address, _directory) = lane::run_dir::address(path)?;
    rustix::net::bind(&socket, &address)?;
    // The umask may have made it narrower.
    let file = lane::run_dir::set_socket_mode(path, mode)?;
    let file = SocketFile { path: path.to_owned(), device: file.st_dev, inode: file.st_ino };
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket.into(), file))
}

/// Serves connections for ever.
async fn serve(listener: Listener, scrapes: &Arc<Scrapes>) -> io::Result<Infallible> {
    match listener {
        Listener::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            accept(async || listener.accept().await.map(|(stream, _)| stream), scrapes).await
        }
        Listener::Unix(listener) => {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            accept(async || listener.accept().await.map(|(stream, _)| stream), scrapes).await
        }
    }
}

async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    next: impl AsyncFn() -> io::Result<S>,
    scrapes: &Arc<Scrapes>,
) -> ! {
    let mut connections: VecDeque<Task<()>> = VecDeque::with_capacity(MAX_CONNECTIONS);
    loop {
        let stream = match next().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "no connection to the metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() == MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(connection(stream, Arc::clone(scrapes))));
    }
}

/// Serves one request.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, scrapes: Arc<Scrapes>) {
    let service = service_fn(|request: Request<_>| {
        let response = respond(&scrapes, &request);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, served).await {
        tracing::debug!(%error, "a scrape failed");
    }
}

fn respond<B>(scrapes: &Scrapes, request: &Request<B>) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "The metrics are at /metrics.\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let accept = request.headers().get(ACCEPT).and_then(|types| types.to_str().ok());
    let format = Format::of_accept(accept);
    match scrapes.text(format) {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let content_type = hyper::header::HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Err(std::fmt::Error) => plain(StatusCode::INTERNAL_SERVER_ERROR, "The metrics can't be written.\n"),
    }
}
