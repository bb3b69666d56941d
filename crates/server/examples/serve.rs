//! A server in a few lines: `serve ADDR:PORT RUN_DIR 'exports(5) line'...`, until SIGTERM.

use samehost_server::{Config, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listen = vec![args.next().ok_or("an address to listen on is missing")?.parse()?];
    let run_dir = args.next().ok_or("a run directory is missing")?.into();
    let config = Config { listen, run_dir, exports: args.collect(), ..Config::default() };
    let server = Server::start(config)?;
    for notice in server.notices() {
        eprintln!("notice: {notice}");
    }
    println!("ready: {:?}", server.local_addrs());
    server.run_until_signalled()?;
    Ok(())
}
