//! The word that a mount's process in the background gives to the command that started it: one line of JSON
//! each, over the pipe that is its standard output.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Not yet: something that the user should know while waiting.
    Waiting(String),
    /// It is mounted.
    Mounted,
    /// It isn't, and it is being tried in the background (`bg`).
    Trying(String),
    /// It isn't.
    Failed {
        /// The exit code.
        exit: u8,
        /// [`Failure`]'s fields.
        object: String,
        /// What happened.
        reason: String,
        /// What to do.
        next: Option<String>,
    },
}

impl From<&Failure> for Word {
    fn from(failure: &Failure) -> Self {
        Self::Failed {
            exit: failure.exit as u8,
            object: failure.object.clone(),
            reason: failure.reason.clone(),
            next: failure.next.clone(),
        }
    }
}

impl Word {
    /// Says it.
    pub fn say(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)?;
        to.flush()
    }

    /// Listens for the last word; `waiting` gets those before. `None`: the process ended without one.
    pub fn last(from: impl BufRead, mut waiting: impl FnMut(&str)) -> Option<Result<Self, Failure>> {
        for line in from.lines() {
            let word = match line.map(|line| serde_json::from_str(&line)) {
                Ok(Ok(word)) => word,
                Ok(Err(error)) => return Some(Err(Failure::new("the mount's process", error))),
                Err(error) => return Some(Err(Failure::new("the mount's process", error))),
            };
            match word {
                Self::Waiting(what) => waiting(&what),
                Self::Failed { exit, object, reason, next } => {
                    let failure = Failure { exit: code(exit), object, reason, next };
                    return Some(Err(failure));
                }
                last => return Some(Ok(last)),
            }
        }
        None
    }
}

fn code(number: u8) -> Exit {
    [Exit::Usage, Exit::NotLocal, Exit::Unreachable]
        .into_iter()
        .find(|exit| *exit as u8 == number)
        .unwrap_or(Exit::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(words: &[Word]) -> (Vec<String>, Option<Result<Word, Failure>>) {
        let mut pipe = Vec::new();
        words.iter().for_each(|word| word.say(&mut pipe).unwrap());
        let mut waited = Vec::new();
        let last = Word::last(&pipe[..], |what| waited.push(what.to_owned()));
        (waited, last)
    }

    #[test]
    fn the_last_word_counts() {
        let (waited, last) =
            heard(&[Word::Waiting("for\nit".into()), Word::Mounted, Word::Waiting("no".into())]);
        assert_eq!((waited, last), (vec!["for\nit".to_owned()], Some(Ok(Word::Mounted))));
        let failure = Failure::new("a", "b").next("c").exit(Exit::Unreachable);
        assert_eq!(heard(&[Word::from(&failure)]).1, Some(Err(failure)));
        assert_eq!(heard(&[]).1, None);
        assert!(Word::last(&b"nonsense\n"[..], |_| {}).unwrap().is_err());
    }
}
