//! The mount's results as a plot: for each cell a bar for the lane and two for the wire, as fractions of the
//! raw filesystem. Plain SVG, so that it can be read and compared like any other text.

use std::fmt::Write as _;

use super::fio::Cell;

const LABELS: f64 = 250.0;
const WIDTH: f64 = 420.0;
const MARGIN: f64 = 60.0;
const ROW: f64 = 42.0;
const BAR: f64 = 11.0;
const HEAD: f64 = 64.0;
/// The right edge, as a multiple of raw.
const MAX_RATIO: f64 = 1.2;

const LANE: &str = "#2a6f97";
const WIRE: &str = "#c98b3c";
const WIRE_4: &str = "#7a9e4f";

/// All cells, grouped by filesystem.
pub fn svg(cells: &[Cell]) -> String {
    let kinds = kinds(cells);
    let height = HEAD + cells.len() as f64 * ROW + kinds.len() as f64 * ROW + 10.0;
    let total = LABELS + WIDTH + MARGIN;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>"
    );
    text(
        &mut out,
        10.0,
        20.0,
        "start",
        "The mount as a part of the raw filesystem (fio, libaio, direct, depth 8)",
    );
    legend(&mut out);
    for tick in 0..=6 {
        let part = f64::from(tick) * 0.2;
        let x = x(part);
        let colour = if tick == 5 { "#888" } else { "#e4e4e4" };
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{:.0}\" x2=\"{x:.1}\" y2=\"{height:.0}\" stroke=\"{colour}\"/>",
            HEAD - 4.0
        );
        text(&mut out, x, HEAD - 8.0, "middle", &format!("{part:.1}"));
    }
    let mut y = HEAD;
    for kind in kinds {
        y += ROW;
        let _ = writeln!(out, "<text x=\"10\" y=\"{:.1}\" font-weight=\"bold\">{kind}</text>", y - 9.0);
        for cell in cells.iter().filter(|cell| cell.kind == kind) {
            row(&mut out, y, cell);
            y += ROW;
        }
    }
    out.push_str("</svg>\n");
    out
}

fn kinds(cells: &[Cell]) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::new();
    for cell in cells {
        if kinds.last() != Some(&cell.kind.as_str()) {
            kinds.push(&cell.kind);
        }
    }
    kinds
}

fn row(out: &mut String, y: f64, cell: &Cell) {
    let [raw, lane, wire, wire_4] = &cell.results;
    text(out, LABELS - 8.0, y + 15.0, "end", &cell.title());
    for (place, (figure, colour)) in [(lane, LANE), (wire, WIRE), (wire_4, WIRE_4)].into_iter().enumerate() {
        let offset = 2.0 + place as f64 * (BAR + 1.0);
        let part = figure.ratios_to(raw).median();
        let (top, length) = (y + offset, x(part.min(MAX_RATIO)) - LABELS);
        let _ = writeln!(
            out,
            "<rect x=\"{LABELS}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
        );
        text(out, LABELS + length + 4.0, top + BAR - 1.5, "start", &format!("{part:.2}"));
    }
    let goal = x(cell.load.goal);
    let _ = writeln!(
        out,
        "<line x1=\"{goal:.1}\" y1=\"{:.1}\" x2=\"{goal:.1}\" y2=\"{:.1}\" stroke=\"#b00\" \
         stroke-width=\"2\"/>",
        y + 1.0,
        y + 3.0 + BAR
    );
}

fn legend(out: &mut String) {
    let mut at = 10.0;
    for (colour, what) in
        [(LANE, "lane"), (WIRE, "wire"), (WIRE_4, "wire, 4.2"), ("#b00", "goal for the lane")]
    {
        let _ = writeln!(out, "<rect x=\"{at}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
        text(out, at + 14.0, 39.0, "start", what);
        at += 84.0;
    }
}

/// The horizontal position of a multiple of raw.
fn x(part: f64) -> f64 {
    LABELS + part / MAX_RATIO * WIDTH
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}
