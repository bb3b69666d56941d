//! Sequential reads over the wire compared with an iperf3 stream over the same loopback.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use samehost_tests::process::{Daemon, wait_for};
use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, Serve};

use crate::Effort;
use crate::data_paths::{figure, json_of, row};
use crate::figure::{Figure, Table, bytes_per_second, ratio};

const PORT: &str = "25201";

/// One table.
pub fn measure(effort: &Effort) -> Result<Table> {
    let place = Scratch::in_memory();
    let export = place.mkdir("export");
    let server = Serve::openly(&export).start();
    let mut peer = Command::new("iperf3");
    peer.args(["--server", "--bind", "127.0.0.1", "--port", PORT, "--forceflush"]);
    let peer = Daemon::start("iperf3", &mut peer, &place.join("iperf3.log"))?;
    wait_for("iperf3 to listen", || peer.log().contains("listening").then_some(()));
    let (mut reads, mut stream) = (Figure::default(), Figure::default());
    for _ in 0..effort.runs {
        let mut command = Command::new(binary());
        command
            .args([
                "bench",
                &server.url(&export),
                "--vers",
                "3",
                "--lane",
                "off",
                "--json",
                "--runs",
                "1",
                "--size",
                "256",
            ])
            .args(["--time", &format!("{:.0}", effort.seconds * 1000.0)]);
        let report = json_of(&mut command)?;
        reads.add(figure(&row(&report, "sequential-read-128k")?["wire"]).median() * f64::from(128 << 10));
        let mut command = Command::new("iperf3");
        command.args(["--client", "127.0.0.1", "--port", PORT, "--json", "--length", "128K"]);
        command.args(["--time", &format!("{:.0}", effort.seconds.ceil())]);
        let report = json_of(&mut command)?;
        let bits = report.pointer("/end/sum_received/bits_per_second").and_then(|v| v.as_f64());
        let bits = bits.with_context(|| format!("iperf3 printed {report}"))?;
        ensure!(bits > 0.0, "iperf3 moved nothing");
        stream.add(bits / 8.0);
    }
    Ok(Table {
        title: "Sequential reads over the wire, and iperf3".to_owned(),
        description:
            "128 KiB sequential reads with our own client from tmpfs, queue depth 8, one connection, \
                beside one iperf3 stream over the same loopback in turn. The goal is 0.6."
                .to_owned(),
        head: vec!["", "Samehost", "iperf3", "ratio"],
        rows: vec![vec![
            "128 KiB sequential read".to_owned(),
            reads.show(bytes_per_second),
            stream.show(bytes_per_second),
            ratio(&reads, &stream),
        ]],
    })
}
