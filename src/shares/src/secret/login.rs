//! With which keys a node tries to mount a share: at most two, and the second only where it is another than the first.
//!
//! ```text
//! ask ──▶ mount ──▶ refused ──▶ ask with "not this one" ──▶ another? ──▶ mount ──▶ refused ──▶ give up
//!                                                        └─▶ the same: give up
//! ```

use lazuli_model::Secret;

use super::Credentials;

/// Whether there is anybody to ask for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// There is nobody: the request's own secrets are all.
    Request,
    /// A source of keys can be asked.
    Reader,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask for a key.
    Ask {
        /// The one that the server has refused; `None` for the first question.
        refused: Option<Secret>,
    },
    /// Mount with these.
    Mount(Credentials),
    /// The server has refused every key that there is.
    GiveUp,
}

/// The attempts at one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    source: Source,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Unknown,
    First(Credentials),
    Refused(Secret),
    Second(Credentials),
    Over,
}

impl Login {
    /// Begins with what is known of the account already.
    pub fn new(known: Option<Credentials>, source: Source) -> Self {
        Self { source, stage: known.map_or(Stage::Unknown, Stage::First) }
    }

    /// What is done next.
    pub fn step(&self) -> Step {
        match &self.stage {
            Stage::Unknown => Step::Ask { refused: None },
            Stage::First(credentials) | Stage::Second(credentials) => Step::Mount(credentials.clone()),
            Stage::Refused(key) => Step::Ask { refused: Some(key.clone()) },
            Stage::Over => Step::GiveUp,
        }
    }

    /// A key has come.
    pub fn answered(&mut self, credentials: Credentials) {
        self.stage = match &self.stage {
            Stage::Unknown => Stage::First(credentials),
            Stage::Refused(key) if *key != credentials.key => Stage::Second(credentials),
            // The same one again, or nobody asked.
            Stage::Refused(_) | Stage::First(_) | Stage::Second(_) | Stage::Over => Stage::Over,
        };
    }

    /// The server has refused the key.
    pub fn refused(&mut self) {
        self.stage = match &self.stage {
            Stage::First(credentials) if self.source == Source::Reader => Stage::Refused(credentials.key.clone()),
            _ => Stage::Over,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credentials(key: &str) -> Credentials {
        Credentials { account: "f1".into(), key: Secret::new(key) }
    }

    #[test]
    fn a_refused_key_is_named_in_the_second_question_and_the_same_answer_ends_it() {
        let mut login = Login::new(None, Source::Reader);
        assert_eq!(login.step(), Step::Ask { refused: None });
        login.answered(credentials("a"));
        assert_eq!(login.step(), Step::Mount(credentials("a")));
        login.refused();
        assert_eq!(login.step(), Step::Ask { refused: Some(Secret::new("a")) });
        let mut same = login.clone();
        same.answered(credentials("a"));
        assert_eq!(same.step(), Step::GiveUp);
        login.answered(credentials("b"));
        assert_eq!(login.step(), Step::Mount(credentials("b")));
        login.refused();
        assert_eq!(login.step(), Step::GiveUp);
        let mut alone = Login::new(Some(credentials("a")), Source::Request);
        alone.refused();
        assert_eq!(alone.step(), Step::GiveUp);
    }

    proptest! {
        #[test]
        fn no_key_is_tried_twice_and_the_attempts_end(
            known in proptest::option::of("[abc]"), answers in proptest::collection::vec("[abc]", 4..5),
            valid in "[abcd]", can_ask in any::<bool>(),
        ) {
            let source = if can_ask { Source::Reader } else { Source::Request };
            let mut login = Login::new(known.as_deref().map(credentials), source);
            let (mut tried, mut answers, mut asked) = (Vec::new(), answers.into_iter(), 0);
            let mounted = loop {
                match login.step() {
                    Step::Ask { refused } => {
                        asked += 1;
                        prop_assert_eq!(refused.map(|key| key.expose().to_owned()), tried.last().cloned());
                        login.answered(credentials(&answers.next().unwrap()));
                    }
                    Step::Mount(with) => {
                        let key = with.key.expose().to_owned();
                        prop_assert!(!tried.contains(&key), "{key} again");
                        tried.push(key.clone());
                        if key == valid {
                            break true;
                        }
                        login.refused();
                    }
                    Step::GiveUp => break false,
                }
            };
            prop_assert!(asked <= 2 && tried.len() <= 2);
            prop_assert_eq!(mounted, tried.contains(&valid));
            prop_assert!(can_ask || known.is_none() || asked == 0);
        }
    }
}
