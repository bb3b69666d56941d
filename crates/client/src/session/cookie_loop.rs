//! Detection of directory listings that never end: a server's cookies may form a loop, by a bug or on
//! purpose.

/// The maximum number of pages in a listing. A page has at least one entry, and normally hundreds.
const MAX_PAGES: u64 = 1 << 20;

/// Detects repeated cookies among the pages of a listing with Brent's algorithm: it remembers one cookie and
/// replaces it with a later one after runs of doubling length. A loop is detected after a few rounds at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct CookieLoopDetector {
    remembered: Option<u64>,
    /// Pages until another cookie is remembered.
    left: u64,
    /// The length of the current run in pages.
    run: u64,
    pages: u64,
}

impl CookieLoopDetector {
    /// Adds the cookie at which the next page begins. Returns true if the listing can't end: the cookie has
    /// occurred before, or there are more than 2^20 pages.
    pub fn is_loop(&mut self, cookie: u64) -> bool {
        self.pages += 1;
        if self.remembered == Some(cookie) || self.pages > MAX_PAGES {
            return true;
        }
        if self.left == 0 {
            self.remembered = Some(cookie);
            self.run = (self.run * 2).max(1);
            self.left = self.run;
        }
        self.left -= 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of pages before a loop is detected.
    fn read(cookies: impl Iterator<Item = u64>) -> Option<usize> {
        let mut detector = CookieLoopDetector::default();
        cookies.into_iter().position(|cookie| detector.is_loop(cookie))
    }

    #[test]
    fn loops_are_detected_wherever_they_begin() {
        for begins in [0, 1, 5, 100] {
            for long in [1, 2, 3, 64, 1000] {
                let cookies = (0..begins).chain((begins..begins + long).cycle());
                let detected = read(cookies).expect("a loop") as u64;
                assert!(detected <= 4 * (begins + long), "{begins}, {long}: {detected}");
            }
        }
    }

    #[test]
    fn a_listing_without_a_loop_is_bounded_only() {
        assert_eq!(read(0..100_000), None);
        assert_eq!(read(0..), Some(MAX_PAGES as usize));
    }
}
