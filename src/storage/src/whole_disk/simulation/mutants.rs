//! Distortions of what a course sees, of what happens to its callers, and of its answers.

/// A distortion that a law must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A read shows what the course's first read showed.
    StaleRead,
    /// The first read of a course finds nothing.
    BlindRead,
    /// The second read of a course shows another claim's disk as its own.
    OwnClaim,
    /// A caller that leaves tells no one.
    NeverLeaves,
    /// Every second answer is lost.
    NoAnswer,
    /// An answer comes twice.
    TwoAnswers,
    /// A failure says that nothing was done.
    NoEffect,
    /// A failed creation is answered as success.
    Optimist,
    /// A refused deletion is answered as success.
    DeletesNothing,
    /// A change that failed is answered as success.
    ChangesNothing,
    /// A rest never ends.
    Sleeps,
}

pub(super) const MUTANTS: [Mutant; 11] = [
    Mutant::StaleRead,
    Mutant::BlindRead,
    Mutant::OwnClaim,
    Mutant::NeverLeaves,
    Mutant::NoAnswer,
    Mutant::TwoAnswers,
    Mutant::NoEffect,
    Mutant::Optimist,
    Mutant::DeletesNothing,
    Mutant::ChangesNothing,
    Mutant::Sleeps,
];
