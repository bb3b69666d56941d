//! A server of this host whose replies are changed on their way.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

/// Listens for connections, forwards them to a port of this host, and lets `change` change the server's
/// replies. Its threads end with their connections, or with the test's process. Returns its own port.
pub fn proxy(to: u16, change: impl Fn(&mut [u8]) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || forward(from, into, |_| ()));
            let change = change.clone();
            thread::spawn(move || forward(server, client, change));
        }
    });
    port
}

/// Forwards records (RFC 5531 section 11), each changed by `change`.
fn forward(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut head = [0; 4];
    while from.read_exact(&mut head).is_ok() {
        let mut record = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
        if from.read_exact(&mut record).is_err() {
            break;
        }
        change(&mut record);
        if to.write_all(&[&head[..], &record].concat()).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
