//! The directory that a walk through a tree is in, and the directories above it. A walk enters no directory
//! that is one of its own ancestors, and none deeper than [`MAX_DEPTH`], so it ends whatever a server claims.

use crate::exit::Failure;

/// The deepest nesting of directories. A server may claim any depth; no filesystem has this one.
const MAX_DEPTH: usize = 8192;

/// A file's filesystem and its number there.
pub type FileId = (u64, u64);

/// The present directory and its ancestors, from the top down.
#[derive(Debug, Default)]
pub struct Ancestors(Vec<FileId>);

/// Why a directory isn't entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestingError {
    /// It is one of its own ancestors.
    Loop,
    /// It is below [`MAX_DEPTH`] others.
    Depth,
}

impl Ancestors {
    /// Whether the directory `file` at `depth` may be entered; the top's depth is 0.
    ///
    /// # Errors
    /// The reason against it.
    pub fn check(&self, depth: usize, file: FileId) -> Result<(), NestingError> {
        if depth > MAX_DEPTH {
            return Err(NestingError::Depth);
        }
        if self.0.iter().take(depth).any(|ancestor| *ancestor == file) {
            Err(NestingError::Loop)
        } else {
            Ok(())
        }
    }

    /// Makes the directory `file` the present one. The walk has left its previous directory at `depth`.
    pub fn enter(&mut self, depth: usize, file: FileId) {
        self.0.truncate(depth);
        self.0.push(file);
    }
}

impl NestingError {
    /// The failure to show for the directory `object`; `done` is what wasn't done with it ("removed").
    pub fn failure(self, object: &str, done: &str) -> Failure {
        match self {
            Self::Loop => Failure::new(object, format!("is inside itself and wasn't {done}"))
                .next("such a directory can only come from a broken or hostile server"),
            Self::Depth => Failure::new(object, "directories are nested too deeply"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ancestors_are_refused() {
        let mut ancestors = Ancestors::default();
        ancestors.enter(0, (1, 1));
        ancestors.enter(1, (1, 2));
        ancestors.enter(2, (1, 3));
        for file in [(1, 1), (1, 2), (1, 3)] {
            assert_eq!(ancestors.check(3, file), Err(NestingError::Loop));
        }
        assert_eq!(ancestors.check(3, (2, 1)), Ok(()));
        // A sibling of (1, 2), below the top only.
        assert_eq!(ancestors.check(1, (1, 2)), Ok(()));
        ancestors.enter(1, (1, 4));
        assert_eq!(ancestors.check(2, (1, 2)), Ok(()));
        assert_eq!(ancestors.check(2, (1, 4)), Err(NestingError::Loop));
    }

    #[test]
    fn the_depth_is_bounded() {
        assert_eq!(Ancestors::default().check(MAX_DEPTH, (1, 1)), Ok(()));
        assert_eq!(Ancestors::default().check(MAX_DEPTH + 1, (1, 1)), Err(NestingError::Depth));
    }
}
