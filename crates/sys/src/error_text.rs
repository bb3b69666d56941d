//! The texts of system errors.

/// A text for people without the numbers that the standard library appends to system errors: "(os error 2)".
#[must_use]
pub fn without_error_numbers(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let (mut words, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(NUMBER) {
        words.push_str(before);
        let number = behind.split_once(')').filter(|(number, _)| number.parse::<u32>().is_ok());
        rest = number.map_or(behind, |(_, rest)| rest);
        if number.is_none() {
            words.push_str(NUMBER);
        }
    }
    words.push_str(rest);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_errors_are_left_out() {
        let error = std::io::Error::from_raw_os_error(13);
        assert_eq!(without_error_numbers(&error.to_string()), "Permission denied");
        let two = format!("/a: {error}; /b: {error}, twice");
        assert_eq!(without_error_numbers(&two), "/a: Permission denied; /b: Permission denied, twice");
        for other in ["", "plain", "a file (os error x)", "an open (os error 1", " (os error "] {
            assert_eq!(without_error_numbers(other), other);
        }
    }
}
