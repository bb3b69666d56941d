//! The text behind a command's options. `--help` and the man page of a command show the same parts.

use std::fmt::Write as _;

use clap_mangen::roff::{Roff, bold, roman};

/// The width of lists in `--help`, in columns.
const WIDTH: usize = 80;
/// The column of a list's descriptions in `--help`.
const COLUMN: usize = 29;

/// A part of the text.
pub enum HelpPart {
    /// Paragraphs. Lines that begin with a space keep their layout.
    Text(String),
    /// A list with a heading.
    List {
        /// The heading.
        heading: &'static str,
        /// Names, each with a description.
        entries: Vec<(String, String)>,
    },
}

/// The parts for `--help`.
pub fn text(parts: &[HelpPart]) -> String {
    let parts = parts.iter().map(|part| match part {
        HelpPart::Text(text) => text.trim_end().to_owned(),
        HelpPart::List { heading, entries } => {
            let mut list = format!("{heading}:");
            entries.iter().for_each(|(name, description)| put_entry(&mut list, name, description));
            list
        }
    });
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Appends an entry in lines of at most [`WIDTH`] columns.
fn put_entry(list: &mut String, name: &str, description: &str) {
    // Writing to a string can't fail.
    let _ = write!(list, "\n  {name}");
    let mut column = name.chars().count() + 2;
    if column + 2 > COLUMN {
        list.push('\n');
        column = 0;
    }
    let mut separator = " ".repeat(COLUMN - column);
    column = COLUMN;
    for word in description.split_whitespace() {
        let length = word.chars().count();
        if separator.len() == 1 && column + 1 + length > WIDTH {
            separator = format!("\n{}", " ".repeat(COLUMN));
            column = COLUMN;
        } else if separator.len() == 1 {
            column += 1;
        }
        list.push_str(&separator);
        list.push_str(word);
        column += length;
        " ".clone_into(&mut separator);
    }
}

/// The parts for a man page, as sections of their own.
pub fn put_sections(page: &mut Roff, parts: &[HelpPart]) {
    let mut is_in_notes = false;
    for part in parts {
        match part {
            HelpPart::Text(text) => {
                if !std::mem::replace(&mut is_in_notes, true) {
                    page.control("SH", ["NOTES"]);
                }
                put_paragraphs(page, text);
            }
            HelpPart::List { heading, entries } => {
                is_in_notes = false;
                page.control("SH", [heading.to_uppercase().as_str()]);
                for (name, description) in entries {
                    page.control("TP", []);
                    page.text([bold(name.as_str())]);
                    page.text([roman(description.as_str())]);
                }
            }
        }
    }
}

fn put_paragraphs(page: &mut Roff, text: &str) {
    page.control("PP", []);
    let mut is_verbatim = false;
    for line in text.lines() {
        if line.is_empty() {
            page.control("PP", []);
            continue;
        }
        if line.starts_with(' ') != is_verbatim {
            is_verbatim = !is_verbatim;
            page.control(if is_verbatim { "nf" } else { "fi" }, []);
        }
        page.text([roman(line)]);
    }
    if is_verbatim {
        page.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<HelpPart> {
        let entry = |name: &str, description: &str| (name.to_owned(), description.to_owned());
        let long = "word ".repeat(30);
        let entries = vec![entry("ro", "Nothing"), entry(&"x".repeat(27), &long), entry("y", &long)];
        vec![
            HelpPart::List { heading: "Words", entries },
            HelpPart::Text("One\ntwo\n\nThree:\n  a\n.b\n".to_owned()),
        ]
    }

    #[test]
    fn lists_are_laid_out_for_a_terminal() {
        let text = text(&parts());
        assert!(text.starts_with("Words:\n  ro                         Nothing\n  xxx"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let first = format!("\n  {}\n{}word word", "x".repeat(27), " ".repeat(COLUMN));
        assert!(text.contains(&first), "{text}");
        assert!(text.ends_with("word\n\nOne\ntwo\n\nThree:\n  a\n.b"), "{text}");
    }

    #[test]
    fn lists_and_paragraphs_are_sections_of_a_man_page() {
        let mut page = Roff::new();
        put_sections(&mut page, &parts());
        let page = page.render();
        assert!(page.contains(".SH WORDS\n.TP\n\\fBro\\fR\nNothing\n.TP\n"), "{page}");
        assert!(page.ends_with(".SH NOTES\n.PP\nOne\ntwo\n.PP\nThree:\n.nf\n  a\n.fi\n\\&.b\n"), "{page}");
    }
}
