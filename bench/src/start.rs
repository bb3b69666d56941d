//! The time from the start of the process to the first reply, and the server's memory then.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use samehost_tests::{Scratch, Serve};

use crate::Effort;
use crate::figure::{Figure, Table};

/// A NULL call of NFS with AUTH_NONE, as one record.
const NULL: [u32; 11] = [1 << 31 | 40, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

/// One table.
pub fn measure(effort: &Effort) -> Result<Table> {
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let mut server = Serve::openly(&export).start();
    let (mut times, mut resident) = (Figure::default(), Figure::default());
    for _ in 0..effort.runs.max(5) {
        let _ = server.stop();
        let port = server.port();
        let start = Instant::now();
        let reply = std::thread::scope(|scope| {
            let client = scope.spawn(move || first_reply(port, start));
            server.restart();
            client.join().expect("the client doesn't panic")
        })?;
        times.add(reply.as_secs_f64() * 1000.0);
        resident.add(server.daemon().resident_kib().context("it runs")? as f64 / 1024.0);
    }
    Ok(Table {
        title: "Start".to_owned(),
        description:
            "From the start of `samehost serve` to its reply to a client that has been trying to connect \
                from the start, and resident memory then. Goals: 50 ms, 32 MiB."
                .to_owned(),
        head: vec!["", "Samehost"],
        rows: vec![
            vec!["start to first reply".to_owned(), times.show(|ms| format!("{ms:.1} ms"))],
            vec!["resident with one client".to_owned(), resident.show(|mib| format!("{mib:.1} MiB"))],
        ],
    })
}

fn first_reply(port: u16, start: Instant) -> Result<Duration> {
    let call: Vec<u8> = NULL.iter().flat_map(|w| w.to_be_bytes()).collect();
    while start.elapsed() < Duration::from_secs(10) {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(&call)?;
            let mut reply = [0; 28];
            stream.read_exact(&mut reply)?;
            return Ok(start.elapsed());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    anyhow::bail!("no reply within 10 s")
}
