//! `top`: a live view of all servers and mounts, and its text and JSON for scripts.

use std::fs::File;
use std::io::IsTerminal as _;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{Global, TopArgs};
use crate::commands::status;
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::output::Output;
use crate::top::keys::Display;
use crate::top::view::View;
use crate::top::{Sample, screen};

/// The longest wait for a key, after which signals are noticed.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// Shows the view until it is ended; once with `--once`.
pub fn top(global: &Global, args: &TopArgs) -> CommandResult {
    if args.json || args.once {
        return text(global, args);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("top", "standard output is no terminal")
            .next("use --once for a text, or --json")
            .into());
    }
    let mut sampler = Sampler::start(global)?;
    // The terminal must be restored before the process ends.
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))
            .map_err(|error| Failure::new("signal handlers", error))?;
    }
    let mut terminal = ratatui::try_init().map_err(|error| Failure::new("the terminal", error))?;
    let shown = show(&mut terminal, &mut sampler, args.delay, &ended);
    ratatui::restore();
    shown.map(|()| Exit::Done)
}

/// Draws, and takes keys, until a key or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    sampler: &mut Sampler<'_>,
    delay: Duration,
    ended: &AtomicBool,
) -> Result<(), Stop> {
    let failed = |error| Failure::new("the terminal", error);
    let input = terminal_input().map_err(failed)?;
    let mut display = Display::default();
    let mut view = sampler.first_view();
    let mut next = Instant::now() + delay;
    while !ended.load(Relaxed) {
        terminal.draw(|frame| screen::draw(frame, &view, &display)).map_err(failed)?;
        let left = next.saturating_duration_since(Instant::now());
        match wait_for_input(&input, left.min(KEY_TIMEOUT)).map_err(failed)? {
            Input::Nothing => {}
            Input::Some => {
                while event::poll(Duration::ZERO).map_err(failed)? {
                    if let Event::Key(key) = event::read().map_err(failed)?
                        && key.kind != KeyEventKind::Release
                        && !display.press(key)
                    {
                        return Ok(());
                    }
                }
            }
            Input::Ended => return Ok(()),
        }
        if Instant::now() >= next {
            if !display.paused {
                view = sampler.next_view()?;
            }
            next = Instant::now() + delay;
        }
    }
    Ok(())
}

/// What a wait for input has found.
enum Input {
    Nothing,
    Some,
    /// The terminal is gone.
    Ended,
}

/// The terminal from which crossterm reads keys.
fn terminal_input() -> std::io::Result<File> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(stdin.as_fd().try_clone_to_owned()?.into());
    }
    File::open("/dev/tty")
}

/// Waits for input. crossterm doesn't return from a terminal that has hung up, and isn't asked then.
fn wait_for_input(input: &File, timeout: Duration) -> std::io::Result<Input> {
    let mut descriptors = [PollFd::new(input, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).map_err(std::io::Error::other)?;
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(0) => return Ok(Input::Nothing),
        Ok(_) => {}
        // A signal: the terminal may have another size.
        Err(Errno::INTR) => return Ok(Input::Some),
        Err(errno) => return Err(errno.into()),
    }
    let ended = descriptors[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(if ended { Input::Ended } else { Input::Some })
}

/// Text once, or JSON once or in each interval.
fn text(global: &Global, args: &TopArgs) -> CommandResult {
    let mut sampler = Sampler::start(global)?;
    let mut output = Output::stdout();
    loop {
        sleep(args.delay);
        let view = sampler.next_view()?;
        if args.json {
            output.json_line(&view)?;
        } else {
            screen::all(&view).into_iter().try_for_each(|line| output.line(line))?;
        }
        output.flush()?;
        if args.once {
            let is_empty = view.servers == 0 && view.mounts.is_empty();
            return Ok(if is_empty { Exit::Unreachable } else { Exit::Done });
        }
    }
}

/// Takes samples, and remembers the last one.
struct Sampler<'a> {
    global: &'a Global,
    last: Sample,
}

impl<'a> Sampler<'a> {
    fn start(global: &'a Global) -> Result<Self, Failure> {
        Ok(Self { global, last: take(global)? })
    }

    /// The view without rates.
    fn first_view(&self) -> View {
        View::new(None, &self.last, is_own)
    }

    fn next_view(&mut self) -> Result<View, Failure> {
        let sample = take(self.global)?;
        let view = View::new(Some(&self.last), &sample, is_own);
        self.last = sample;
        Ok(view)
    }
}

fn take(global: &Global) -> Result<Sample, Failure> {
    Sample::take(&global.run_dir).map_err(|error| status::unreadable(&global.run_dir, &error))
}

/// Whether an address is this host's: only then can a socket have it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_its_loopback_address_only() {
        assert!(is_own([127, 0, 0, 1].into()));
        // RFC 5737: an address for documentation.
        assert!(!is_own([192, 0, 2, 1].into()));
    }
}
