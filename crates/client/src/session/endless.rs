//! A listing that never ends: a server whose cookies lead back to where they have been, by a bug or on
//! purpose.

/// Pages of a listing, at most. A page has at least one entry, and of any sensible server hundreds.
const MOST: u64 = 1 << 20;

/// Notices when the cookies of a listing's pages repeat (Brent's algorithm: one cookie is remembered, and
/// replaced by a later one after ever longer runs). A circle is noticed when it has been gone through a few
/// times at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Endless {
    remembered: Option<u64>,
    /// Pages until another cookie is remembered, and how long that run is.
    left: u64,
    run: u64,
    pages: u64,
}

impl Endless {
    /// The listing goes on behind this cookie. Whether it can't end: it has been there before, or there are
    /// more than 2^20 pages.
    pub fn goes_on(&mut self, cookie: u64) -> bool {
        self.pages += 1;
        if self.remembered == Some(cookie) || self.pages > MOST {
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

    /// Pages that are read until the circle is noticed.
    fn read(cookies: impl Iterator<Item = u64>) -> Option<usize> {
        let mut endless = Endless::default();
        cookies.into_iter().position(|cookie| endless.goes_on(cookie))
    }

    #[test]
    fn circles_are_noticed_wherever_they_begin() {
        for begins in [0, 1, 5, 100] {
            for long in [1, 2, 3, 64, 1000] {
                let circle = (0..begins).chain((begins..begins + long).cycle());
                let noticed = read(circle).expect("it never ends otherwise") as u64;
                assert!(noticed <= 4 * (begins + long), "{begins}, {long}: {noticed}");
            }
        }
    }

    #[test]
    fn what_goes_on_is_no_circle_and_has_a_bound() {
        assert_eq!(read(0..100_000), None);
        assert_eq!(read(0..), Some(MOST as usize));
    }
}
