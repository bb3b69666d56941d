//! Plain text tables: columns as wide as their longest cell, with two spaces between, without lines.

use crate::human;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
pub struct TextTable {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with a row of headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let heading = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        Self { align: columns.iter().map(|(_, align)| *align).collect(), rows: vec![heading] }
    }

    /// A table without headings.
    pub fn bare(align: &[Align]) -> Self {
        Self { align: align.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, escaped as by [`human::line`]. Missing cells are empty; cells beyond the last column are
    /// kept, left-aligned.
    pub fn row<I: IntoIterator<Item = S>, S: AsRef<str>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(|cell| human::line(cell.as_ref()).into_owned()).collect());
    }

    /// The lines of the table, `indent` spaces from the left, without trailing spaces.
    pub fn lines(&self, indent: usize) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        self.rows
            .iter()
            .map(|row| {
                let mut line = " ".repeat(indent);
                for (column, cell) in row.iter().enumerate() {
                    if column > 0 {
                        line.push_str("  ");
                    }
                    let fill = " ".repeat(widths[column] - cell.chars().count());
                    match self.align.get(column).copied().unwrap_or(Align::Left) {
                        Align::Left => {
                            line.push_str(cell);
                            line.push_str(&fill);
                        }
                        Align::Right => {
                            line.push_str(&fill);
                            line.push_str(cell);
                        }
                    }
                }
                line.truncate(line.trim_end().len());
                line
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&[("name", Align::Left), ("size", Align::Right)]);
        table.row(["grün", "1"]);
        table.row(["b", "1,000"]);
        assert_eq!(table.lines(2), ["  name   size", "  grün      1", "  b     1,000"]);
    }

    #[test]
    fn a_cell_is_escaped_before_it_is_measured() {
        let mut table = TextTable::bare(&[Align::Left, Align::Left]);
        table.row(["a\x1bb", "1"]);
        table.row(["c", "2"]);
        assert_eq!(table.lines(0), ["a\\x1bb  1", "c       2"]);
    }
}
