//! Lists of options for help texts.

use super::descriptor::{Descriptor, Kind, Source};

/// Columns of a line.
const WIDTH: usize = 80;
/// The column of the descriptions.
const COLUMN: usize = 29;

/// The options of `table` in `source` that change something, one paragraph each, at most 80 columns wide.
#[must_use]
pub fn list<T>(table: &[Descriptor<T>], source: Source) -> String {
    let mut text = String::new();
    let effective = table.iter().filter(|each| each.sources.contains(&source) && each.has_effect());
    for descriptor in effective {
        let usage = descriptor.usage();
        let mut line = format!("  {usage:<width$}", width = COLUMN - 2);
        if line.len() > COLUMN {
            text.push_str(&line);
            text.push('\n');
            line = " ".repeat(COLUMN);
        }
        wrap(&mut text, line, COLUMN, &descriptor.description());
    }
    text
}

/// The names of the options in `table` that `chosen` picks, in lines of at most 80 columns.
#[must_use]
pub fn names<T>(table: &[Descriptor<T>], chosen: impl Fn(&Descriptor<T>) -> bool) -> String {
    let names: Vec<_> = table.iter().filter(|each| chosen(each)).flat_map(Descriptor::names).collect();
    let mut text = String::new();
    wrap(&mut text, "  ".to_owned(), 2, &names.join(", "));
    text
}

/// Whether an option is accepted because the client behaves that way in any case.
#[must_use]
pub const fn is_implied<T>(descriptor: &Descriptor<T>) -> bool {
    !descriptor.has_effect() && !is_refused(descriptor)
}

/// Whether an option is refused whatever its value.
#[must_use]
pub const fn is_refused<T>(descriptor: &Descriptor<T>) -> bool {
    matches!(descriptor.kind, Kind::Refused(_))
}

/// Appends `words` behind `line`, with `indent` columns before each further line.
fn wrap(text: &mut String, mut line: String, indent: usize, words: &str) {
    let mut first = true;
    for word in words.split(' ') {
        if !first && line.len() + 1 + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(indent);
            first = true;
        }
        if !first {
            line.push(' ');
        }
        line.push_str(word);
        first = false;
    }
    text.push_str(&line);
    text.push('\n');
}
