//! A client that tests can start, watch and kill: it writes a stream into a file and reports what is stable,
//! or holds files open.
//!
//! `samehost-test-client stream URL RUN_DIR LANE COUNT` writes COUNT records of 64 KiB into the file of URL,
//! record `i` being `pattern(i)`, commits after every eighth, and prints `stable N DATA_PATH` when the first
//! N records are durable; at the end `done`. It contains no code for restarts of the server: they are
//! invisible to applications.
//!
//! `samehost-test-client hold URL RUN_DIR LANE COUNT` creates and opens COUNT files in the directory of URL,
//! writes a byte to each, prints `holding COUNT DATA_PATH` and then waits until it is killed.
//!
//! `samehost-test-client clone URL RUN_DIR FROM TO` does what no application of a mount can: by NFSv4.2 it
//! gives advice about the file FROM in the directory of URL, and lets the new file TO share its blocks.

use std::io::Write;
use std::process::ExitCode;

use client::blocking::Session;
use client::{Advice, OpenOptions, Options, Url};
use samehost_tests::scratch::pattern;

/// Size of a record in bytes.
const RECORD: usize = 64 << 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stream", url, run_dir, lane, count] => stream(url, run_dir, lane, count),
        ["hold", url, run_dir, lane, count] => hold(url, run_dir, lane, count),
        ["clone", url, run_dir, from, to] => clone(url, run_dir, [from, to]),
        _ => {
            Err("usage: samehost-test-client stream|hold URL RUN_DIR LANE COUNT | clone URL RUN_DIR FROM TO"
                .into())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("samehost-test-client: {error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn connect(url: &str, run_dir: &str, lane: &str) -> Result<Session> {
    let url: Url = url.parse()?;
    // A call lost with a killed server is retransmitted soon after the restart, not after a minute.
    let timeo = std::time::Duration::from_secs(5);
    let options = Options::new().lane(lane.parse()?).run_dir(run_dir).timeo(timeo);
    // A client that is started again for the same path is the same NFSv4 client.
    let options = options.unique_id(String::from_utf8_lossy(url.path()).into_owned());
    Ok(Session::connect(&url, options)?)
}

fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn stream(url: &str, run_dir: &str, lane: &str, count: &str) -> Result<()> {
    let count: u64 = count.parse()?;
    let session = connect(url, run_dir, lane)?;
    let inner = session.session();
    session.run(async {
        let file =
            inner.open(inner.target(), &OpenOptions::new().write(true).read(true).create(true)).await?;
        for record in 0..count {
            file.write_at(&pattern(record, RECORD), record * RECORD as u64).await?;
            if record % 8 == 7 || record + 1 == count {
                file.commit().await?;
                print_line(&format!("stable {} {:?}", record + 1, file.data_path()))?;
            }
        }
        file.close().await?;
        print_line("done")
    })
}

fn clone(url: &str, run_dir: &str, names: [&str; 2]) -> Result<()> {
    let session = connect(&format!("{url}?vers=4.2"), run_dir, "off")?;
    let inner = session.session();
    let [from, to] = names.map(|name| [inner.target(), b"/", name.as_bytes()].concat());
    session.run(async {
        let from = inner.open(&from, &OpenOptions::reading()).await?;
        from.advise(Advice::WillNeed, 0, 0).await?;
        let to = inner.open(&to, &OpenOptions::replacing()).await?;
        from.clone_range(0, &to, 0, 0).await?;
        to.close().await?;
        Ok(from.close().await?)
    })
}

fn hold(url: &str, run_dir: &str, lane: &str, count: &str) -> Result<()> {
    let count: usize = count.parse()?;
    let session = connect(url, run_dir, lane)?;
    let inner = session.session();
    let files = session.run(async {
        let mut files = Vec::new();
        for i in 0..count {
            let path = [inner.target(), format!("/held{i}").as_bytes()].concat();
            let file = inner.open(&path, &OpenOptions::new().write(true).read(true).create(true)).await?;
            file.write_at(b"x", 0).await?;
            files.push(file);
        }
        Result::Ok(files)
    })?;
    print_line(&format!("holding {} {:?}", files.len(), files.first().map(client::File::data_path)))?;
    loop {
        std::thread::park();
    }
}
