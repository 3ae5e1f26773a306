//! An error in words.

use std::error::Error;

/// An error and its sources, from the outermost to the root cause, joined by `": "`. What an error repeats of its source at
/// its end, as those of other libraries do, is there once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("call: {0}")]
    struct Repeating(#[source] Outer);

    #[test]
    fn a_chain_is_printed_from_the_outside_in() {
        assert_eq!(chain(&Outer(io::Error::other("inner"))), "outer: inner");
    }

    #[test]
    fn what_an_error_repeats_of_its_source_is_printed_once() {
        assert_eq!(chain(&Repeating(Outer(io::Error::other("inner")))), "call: outer: inner");
    }
}
