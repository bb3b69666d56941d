//! The layout: lines of text, for a terminal and for `--once`. It works in 80 columns and 24 rows.

use std::os::unix::ffi::OsStrExt as _;

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::keys::{Display, HELP, ScreenPage};
use super::view::{ClientOrder, Quantile, View};
use crate::human;
use crate::table::{Align, TextTable};

/// The limits of what is shown.
const UNCOUNTED: &str = "No process counts or times what the kernel passes through, or what clients do \
                         with files and directories that they were given: a dash.";

/// A line with its style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenLine {
    /// The text.
    pub text: String,
    /// The style on a terminal.
    pub style: Style,
}

impl ScreenLine {
    fn plain(text: impl AsRef<str>) -> Self {
        Self { text: human::line(text.as_ref()).into_owned(), style: Style::new() }
    }

    fn bold(text: impl AsRef<str>) -> Self {
        Self {
            text: human::line(text.as_ref()).into_owned(),
            style: Style::new().add_modifier(Modifier::BOLD),
        }
    }

    fn heading(text: impl AsRef<str>) -> Self {
        Self {
            text: human::line(text.as_ref()).into_owned(),
            style: Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

/// Draws a view. The list gets the rows that the rest leaves.
pub fn draw(frame: &mut Frame<'_>, view: &View, display: &Display) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = head(view);
    let foot = foot(display, width);
    let mut list = list(view, display);
    let rows = height.saturating_sub(lines.len() + foot.len() + 1);
    let first = display.first.min(list.rows.len().saturating_sub(rows));
    list.heading.text.push_str(&format!("  {}", position(first, rows, list.rows.len())));
    lines.push(list.heading);
    lines.extend(list.rows.into_iter().skip(first).take(rows));
    lines.resize(height.saturating_sub(foot.len()), ScreenLine::plain(""));
    lines.extend(foot);
    let lines = lines.into_iter().map(|line| {
        let is_bar = line.style.add_modifier.contains(Modifier::REVERSED);
        let text = if is_bar { format!("{:width$}", line.text) } else { line.text };
        Line::styled(text, line.style)
    });
    frame.render_widget(Text::from_iter(lines), area);
}

/// All lines of a view: the head, and every list.
pub fn all(view: &View) -> Vec<String> {
    let mut lines: Vec<_> = head(view).into_iter().map(|line| line.text).collect();
    // Each list begins with an empty line, as the head ends.
    lines.pop();
    for page in ScreenPage::LISTS {
        let list = list(view, &Display { page, ..Display::default() });
        lines.extend([String::new(), list.heading.text]);
        lines.extend(list.rows.into_iter().map(|line| line.text));
    }
    lines.extend([String::new(), UNCOUNTED.to_owned()]);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// `12-20 of 31`, where there are more rows than fit.
fn position(first: usize, rows: usize, of: usize) -> String {
    if of <= rows { String::new() } else { format!("{}-{} of {of}", first + 1, (first + rows).min(of)) }
}

fn head(view: &View) -> Vec<ScreenLine> {
    let number = |number: usize, one: &str| human::count(number as u64, one);
    let mut lines = vec![ScreenLine::plain(format!(
        "samehost top: {}, {}, {}; {} of this host without a lane",
        number(view.servers, "server"),
        number(view.mounts.len(), "mount"),
        number(view.clients.len(), "client"),
        view.missing_lanes.len(),
    ))];
    let columns = [("data path", Align::Left)]
        .into_iter()
        .chain(["ops/s", "errors/s", "read/s", "written/s", "p50", "p99"].map(|title| (title, Align::Right)));
    let mut table = TextTable::new(&columns.collect::<Vec<_>>());
    for row in &view.data_paths {
        table.row([
            row.name.to_owned(),
            count(row.operations),
            row.errors.map_or_else(unknown, count),
            row.bytes_read.map_or_else(unknown, bytes),
            row.bytes_written.map_or_else(unknown, bytes),
            row.median.map_or_else(unknown, time),
            row.p99.map_or_else(unknown, time),
        ]);
    }
    for (index, line) in table.lines(0).into_iter().enumerate() {
        lines.push(if index == 0 { ScreenLine::bold(line) } else { ScreenLine::plain(line) });
    }
    for silent in &view.silent {
        lines.push(ScreenLine::bold(format!("no answer: {silent}")));
    }
    lines.push(ScreenLine::plain(""));
    lines
}

/// The honest note and the keys, in as many lines as the width needs.
fn foot(display: &Display, width: usize) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in UNCOUNTED.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(ScreenLine::plain(std::mem::take(&mut line)));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(ScreenLine::plain(line));
    let paused = if display.paused { "PAUSED  " } else { "" };
    lines.push(ScreenLine::heading(format!(
        "{paused}c clients  m mounts  e exports  l lanes  < > R sort  space pause  h help  q quit"
    )));
    lines
}

/// A list with its heading.
struct ScreenList {
    heading: ScreenLine,
    rows: Vec<ScreenLine>,
}

fn list(view: &View, display: &Display) -> ScreenList {
    let (title, table) = match display.page {
        ScreenPage::Clients => (clients_title(display), clients(view, display)),
        ScreenPage::Mounts => ("MOUNTS".to_owned(), mounts(view)),
        ScreenPage::Exports => ("EXPORTS".to_owned(), exports(view)),
        ScreenPage::Lanes => ("LANES THAT SHOULD BE AND AREN'T".to_owned(), lanes(view)),
        ScreenPage::Help => {
            let mut table = TextTable::bare(&[Align::Left, Align::Left]);
            HELP.into_iter().for_each(|(keys, what)| table.row([keys, what]));
            ("KEYS".to_owned(), table)
        }
    };
    let mut rows: Vec<_> = table.lines(0).into_iter().map(ScreenLine::plain).collect();
    let has_titles = display.page != ScreenPage::Help;
    match rows.first_mut() {
        Some(titles) if has_titles => titles.style = Style::new().add_modifier(Modifier::BOLD),
        _ => {}
    }
    if has_titles && rows.len() == 1 {
        rows = vec![ScreenLine::plain("none")];
    }
    ScreenList { heading: ScreenLine::heading(title), rows }
}

fn clients_title(display: &Display) -> String {
    let order = match display.order {
        ClientOrder::Client => "address",
        ClientOrder::Calls => "calls",
        ClientOrder::Received => "bytes received",
        ClientOrder::Sent => "bytes sent",
        ClientOrder::Grants => "grants",
    };
    format!("CLIENTS by {order}{}", if display.reversed { ", reversed" } else { "" })
}

fn clients(view: &View, display: &Display) -> TextTable {
    let mut table = TextTable::new(&[
        ("client", Align::Left),
        ("local", Align::Left),
        ("calls/s", Align::Right),
        ("received/s", Align::Right),
        ("sent/s", Align::Right),
        ("grants", Align::Right),
        ("why", Align::Left),
    ]);
    let mut rows = view.clients.clone();
    display.order.sort(&mut rows);
    if display.reversed {
        rows.reverse();
    }
    for row in rows {
        table.row([
            row.peer,
            (if row.local { "yes" } else { "no" }).to_owned(),
            count(row.calls),
            bytes(row.bytes_in),
            bytes(row.bytes_out),
            row.grants.map_or_else(unknown, human::thousands),
            row.reason,
        ]);
    }
    table
}

fn mounts(view: &View) -> TextTable {
    let mut table = TextTable::new(&[
        ("mountpoint", Align::Left),
        ("requests/s", Align::Right),
        ("read/s", Align::Right),
        ("written/s", Align::Right),
        ("waiting", Align::Right),
        ("data path", Align::Left),
    ]);
    for row in &view.mounts {
        let mut data_path = row.data_path.clone();
        if !row.reasons.is_empty() {
            data_path.push_str(&format!(": {}", row.reasons.join("; ")));
        }
        table.row([
            human::name(row.mountpoint.as_os_str().as_bytes()),
            count(row.requests),
            bytes(row.bytes_read),
            bytes(row.bytes_written),
            human::thousands(row.under_way),
            data_path,
        ]);
    }
    table
}

fn exports(view: &View) -> TextTable {
    let mut table = TextTable::new(&[
        ("export", Align::Left),
        ("calls/s", Align::Right),
        ("read/s", Align::Right),
        ("written/s", Align::Right),
        ("p99", Align::Right),
        ("served", Align::Left),
        ("tree", Align::Left),
        ("clients", Align::Left),
    ]);
    for row in &view.exports {
        let served =
            row.problem.as_ref().map_or_else(|| "yes".to_owned(), |problem| format!("NO: {problem}"));
        table.row([
            human::name(row.path.as_os_str().as_bytes()),
            count(row.calls),
            bytes(row.bytes_read),
            bytes(row.bytes_written),
            row.p99.map_or_else(unknown, time),
            served,
            row.tree.clone(),
            row.clients.join(" "),
        ]);
    }
    table
}

fn lanes(view: &View) -> TextTable {
    let mut table = TextTable::new(&[("client or mount", Align::Left), ("why it has no lane", Align::Left)]);
    for lane in &view.missing_lanes {
        table.row([&lane.who, &lane.reason]);
    }
    table
}

/// What isn't counted.
fn unknown() -> String {
    "-".to_owned()
}

/// A rate: whole numbers, with one digit below 10.
fn count(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { human::thousands(whole(rate)) }
}

/// A time, as its buckets tell it: "≤250 µs", ">1 s".
fn time(quantile: Quantile) -> String {
    let (sign, nanoseconds) = match quantile {
        Quantile::AtMostNs(bound) => ('≤', bound),
        Quantile::MoreThanNs(bound) => ('>', bound),
    };
    match nanoseconds {
        0..1_000_000 => format!("{sign}{} µs", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{sign}{} ms", nanoseconds as f64 / 1e6),
        _ => format!("{sign}{} s", nanoseconds as f64 / 1e9),
    }
}

fn bytes(rate: f64) -> String {
    human::bytes(whole(rate))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate isn't negative")]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::view::tests::{mount, sample, server};

    fn view() -> View {
        let begin = Instant::now();
        let before = sample(begin, 0, vec![server(100, 1000, 10)], vec![mount(10)]);
        let after = sample(begin, 2, vec![server(300, 9000, 30)], vec![mount(30)]);
        View::new(Some(&before), &after, |ip| ip.is_loopback())
    }

    /// The rows of a terminal of 80 columns.
    fn rows(view: &View, display: Display, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, &display)).unwrap();
        let cells = terminal.backend().buffer().content();
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
        cells.chunks(80).map(row).map(|row| row.trim_end().to_owned()).collect()
    }

    #[test]
    fn clients_at_80_by_24() {
        let rows = rows(&view(), Display::default(), 24);
        let expected = [
            "samehost top: 1 server, 1 mount, 3 clients; 2 of this host without a lane",
            "data path              ops/s  errors/s    read/s  written/s     p50    p99",
            "servers: wire            200         0  3.91 KiB   7.81 KiB  ≤10 µs  ≤1 ms",
            "servers: lane            500         0         -          -  ≤10 µs  >1 ms",
            "mounts: wire              10         -  40.0 KiB        0 B       -      -",
            "mounts: lane               0         -       0 B        0 B       -      -",
            "mounts: passed, opens     40         -         -          -       -      -",
            "",
            "CLIENTS by calls",
            "client         local  calls/s  received/s  sent/s  grants  why",
            "127.0.0.1:701  no          30    1000 B     0 B       -  it has no_lane",
        ];
        for (row, expected) in rows.iter().zip(&expected[..10]) {
            assert_eq!(row, expected, "{rows:#?}");
        }
        assert!(rows[10].starts_with("127.0.0.1:701  no          30"), "{rows:#?}");
        assert!(rows[11].contains("yes") && rows[11].contains("17  through /run/x.lane"), "{rows:#?}");
        assert!(rows[12].starts_with("192.0.2.9:702"), "{rows:#?}");
        assert!(rows[21].starts_with("No process counts or times"), "{rows:#?}");
        assert!(rows[23].starts_with("c clients") && rows[23].ends_with("q quit"), "{rows:#?}");
    }

    #[test]
    fn every_page_fits() {
        for (page, words) in [
            (ScreenPage::Mounts, "/mnt"),
            (ScreenPage::Exports, "NO: no such directory"),
            (ScreenPage::Lanes, "no server socket in /run/samehost"),
            (ScreenPage::Help, "reverse the order"),
        ] {
            let rows = rows(&view(), Display { page, ..Display::default() }, 24);
            assert!(rows.iter().any(|row| row.contains(words)), "{page:?}: {rows:#?}");
            assert!(rows[23].ends_with("q quit"), "{page:?}");
        }
    }

    #[test]
    fn long_lists_scroll_and_stop_at_their_end() {
        let mut view = view();
        let row = view.clients[0].clone();
        let rows_of =
            |number| crate::top::view::ClientRow { peer: format!("192.0.2.1:{number}"), ..row.clone() };
        view.clients = (100..200).map(rows_of).collect();
        let page = |first| {
            let display = Display { first, order: ClientOrder::Client, ..Display::default() };
            rows(&view, display, 24)
        };
        assert!(page(0)[8].contains("1-12 of 101"), "{:#?}", page(0));
        assert!(page(1)[9].starts_with("192.0.2.1:100"));
        let last = page(1_000_000);
        assert!(last[8].contains("90-101 of 101") && last[20].starts_with("192.0.2.1:199"), "{last:#?}");
    }

    #[test]
    fn tiny_terminals_and_empty_hosts() {
        for height in 1..24 {
            assert_eq!(rows(&view(), Display::default(), height).len(), usize::from(height));
        }
        let empty = rows(&View::default(), Display::default(), 24);
        assert!(empty[0].contains("0 servers, 0 mounts"), "{empty:#?}");
        assert!(empty.iter().any(|row| row == "none"), "{empty:#?}");
    }

    #[test]
    fn text_has_every_list() {
        let text = all(&view()).join("\n");
        for words in
            ["servers: wire", "CLIENTS by calls", "MOUNTS", "EXPORTS", "LANES THAT", "No process counts"]
        {
            assert!(text.contains(words), "no {words} in {text}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        let at_most = [10_000, 2_500_000, 1_000_000_000].map(Quantile::AtMostNs).map(time);
        assert_eq!(at_most, ["≤10 µs", "≤2.5 ms", "≤1 s"]);
        assert_eq!(time(Quantile::MoreThanNs(1_000_000_000)), ">1 s");
    }

    #[test]
    fn rates_below_ten_keep_a_digit() {
        assert_eq!([0.0, 0.26, 9.94, 9.96, 1234.4].map(count), ["0", "0.3", "9.9", "10", "1,234"]);
    }
}
