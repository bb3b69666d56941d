//! Splits a comma-separated list of options. A value in double quotes may hold commas, as in mount(8).

use super::OptionError;

/// One option, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Before the '='.
    pub name: String,
    /// After it.
    pub value: Option<String>,
}

impl Item {
    /// Fails if there is a value.
    pub fn bare(&self) -> Result<(), OptionError> {
        match &self.value {
            None => Ok(()),
            Some(value) => Err(OptionError::NeedlessValue { name: self.name.clone(), value: value.clone() }),
        }
    }
}

/// Splits `text` at its commas. Empty items are skipped.
pub fn split(text: &str) -> Result<Vec<Item>, OptionError> {
    let mut items = Vec::new();
    let mut quoted = false;
    let mut current = String::new();
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => put(&mut items, &mut current),
            other => current.push(other),
        }
    }
    if quoted {
        return Err(OptionError::Quote { text: text.to_owned() });
    }
    put(&mut items, &mut current);
    Ok(items)
}

fn put(items: &mut Vec<Item>, current: &mut String) {
    let text = std::mem::take(current);
    if text.is_empty() {
        return;
    }
    items.push(match text.split_once('=') {
        Some((name, value)) => Item { name: name.to_owned(), value: Some(value.to_owned()) },
        None => Item { name: text, value: None },
    });
}
