//! TCP connections to a server that a test can close, or keep silent.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Forwards connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forwards,
    /// Nothing arrives on any connection.
    Holds,
    /// Each connection is closed.
    Closes,
}

struct Shared {
    state: Mutex<(Mode, Vec<TcpStream>)>,
    changed: Condvar,
}

impl Proxy {
    /// Listens for connections to a port of this host. Its threads end with their connections, or with the
    /// test's process.
    pub fn new(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Mutex::new((Mode::Forwards, Vec::new()));
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                let mut state = accepting.state.lock();
                if state.0 == Mode::Closes {
                    continue;
                }
                for (from, to) in [(&connection, &server), (&server, &connection)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = accepting.clone();
                    std::thread::spawn(move || shared.forward(from, to));
                }
                state.1.extend([connection, server]);
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Keeps back what is sent, until [`Proxy::resume`].
    pub fn hold(&self) {
        self.shared.state.lock().0 = Mode::Holds;
    }

    /// Closes all connections, and each new one until [`Proxy::resume`].
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.0 = Mode::Closes;
        for connection in state.1.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub fn resume(&self) {
        self.shared.state.lock().0 = Mode::Forwards;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let mut state = self.state.lock();
            while state.0 == Mode::Holds {
                self.changed.wait(&mut state);
            }
            drop(state);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
