//! A comma-separated list taken apart. A value in double quotes may hold commas, as in mount(8).

use super::OptionError;

/// One option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Before the '='.
    pub name: String,
    /// Behind it.
    pub value: Option<String>,
}

impl Item {
    /// The value, which must be there.
    pub fn value(&self) -> Result<&str, OptionError> {
        let missing = || OptionError::NoValue { name: self.name.clone() };
        self.value.as_deref().filter(|value| !value.is_empty()).ok_or_else(missing)
    }

    /// There must be no value.
    pub fn bare(&self) -> Result<(), OptionError> {
        match &self.value {
            None => Ok(()),
            Some(value) => Err(OptionError::NeedlessValue { name: self.name.clone(), value: value.clone() }),
        }
    }

    /// The value as a number within `range`.
    pub fn number<T>(
        &self,
        range: std::ops::RangeInclusive<T>,
        expected: &'static str,
    ) -> Result<T, OptionError>
    where
        T: std::str::FromStr + PartialOrd,
    {
        let value = self.value()?;
        // `str::parse` takes a plus sign, mount options don't.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse().ok().filter(|number| digits && range.contains(number));
        number.ok_or_else(|| self.wrong(expected))
    }

    /// The value isn't one of the values.
    pub fn wrong(&self, expected: &'static str) -> OptionError {
        OptionError::Value {
            name: self.name.clone(),
            value: self.value.clone().unwrap_or_default(),
            expected,
        }
    }

    /// The option can't be had.
    pub fn impossible(&self, reason: &'static str) -> OptionError {
        let option = match &self.value {
            Some(value) => format!("{}={value}", self.name),
            None => self.name.clone(),
        };
        OptionError::Impossible { option, reason }
    }
}

/// Takes `text` apart. Empty places between commas mean nothing.
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
