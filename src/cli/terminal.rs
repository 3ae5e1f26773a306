//! What is known of the terminal that a person looks at: its width, and whether it is to be coloured.

use std::io::{self, IsTerminal};

/// What an output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Screen {
    /// How many columns a line may have; `None` where nothing limits it, as in a pipe.
    pub(super) width: Option<usize>,
    /// Whether words may be coloured.
    pub(super) is_coloured: bool,
    /// Whether a line may be written over: it is a terminal that obeys, and nobody asked for plain text.
    pub(super) is_live: bool,
}

/// What a screen is decided from.
#[derive(Debug, Clone, Default)]
struct Evidence {
    is_terminal: bool,
    /// `$COLUMNS`
    columns: Option<String>,
    /// What the kernel says of the terminal.
    window: Option<u16>,
    /// `$NO_COLOR`; source: no-color.org, a convention of terminal programs.
    no_color: Option<String>,
    /// `$TERM`
    term: Option<String>,
}

fn screen(seen: &Evidence) -> Screen {
    if !seen.is_terminal {
        return Screen::default();
    }
    let of_variable = seen.columns.as_deref().and_then(|columns| columns.trim().parse::<usize>().ok());
    let width = of_variable.filter(|width| *width > 0).or(seen.window.map(usize::from)).filter(|width| *width > 0);
    let is_plain = seen.no_color.as_deref().is_some_and(|text| !text.is_empty());
    let is_live = !is_plain && seen.term.as_deref() != Some("dumb");
    Screen { width, is_coloured: is_live, is_live }
}

fn of(output: &(impl IsTerminal + std::os::fd::AsFd)) -> Screen {
    let is_terminal = output.is_terminal();
    let variable = |name| std::env::var(name).ok();
    let window = if is_terminal { rustix::termios::tcgetwinsize(output).ok() } else { None };
    screen(&Evidence {
        is_terminal,
        columns: variable("COLUMNS"),
        window: window.map(|size| size.ws_col),
        no_color: variable("NO_COLOR"),
        term: variable("TERM"),
    })
}

impl Screen {
    /// That of the results.
    pub(super) fn of_stdout() -> Self {
        of(&io::stdout())
    }

    /// That of what is said beside the results.
    pub(super) fn of_stderr() -> Self {
        of(&io::stderr())
    }

    /// A text in a colour, where colours are wanted.
    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        if self.is_coloured { format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code()) } else { text.to_owned() }
    }
}

/// A colour of text: one of the eight that every terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Colour {
    /// Source: ECMA-48, Select Graphic Rendition.
    fn code(self) -> u8 {
        match self {
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Cyan => 36,
        }
    }
}

/// Breaks a text into lines of at most `width` columns between words. A word that is longer has a line of its own. `first` and
/// `rest` stand before the first and the other lines, and count.
pub(super) fn wrapped(text: &str, width: Option<usize>, first: &str, rest: &str) -> String {
    let Some(width) = width else { return format!("{first}{text}") };
    let mut lines = first.to_owned();
    let mut at = first.chars().count();
    let mut is_fresh = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !is_fresh && at + 1 + length > width {
            lines.push('\n');
            lines.push_str(rest);
            at = rest.chars().count();
            is_fresh = true;
        }
        if !is_fresh {
            lines.push(' ');
            at += 1;
        }
        lines.push_str(word);
        at += length;
        is_fresh = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_neither_width_nor_colours_whatever_the_variables_say() {
        let seen = Evidence { columns: Some("80".into()), term: Some("xterm".into()), ..Evidence::default() };
        assert_eq!(screen(&seen), Screen::default());
    }

    #[test]
    fn a_terminal_is_as_wide_as_the_variable_says_else_the_kernel() {
        let seen = |columns: Option<&str>| Evidence {
            is_terminal: true,
            window: Some(100),
            columns: columns.map(str::to_owned),
            term: Some("xterm".into()),
            ..Evidence::default()
        };
        let width = |columns| screen(&seen(columns)).width;
        assert_eq!(
            [width(Some("120")), width(None), width(Some("many")), width(Some("0"))].map(Option::unwrap),
            [120, 100, 100, 100]
        );
        assert_eq!(screen(&Evidence { window: Some(0), ..seen(None) }).width, None);
        assert!(screen(&seen(None)).is_coloured);
    }

    #[test]
    fn who_wants_no_colour_gets_none() {
        let seen = Evidence { is_terminal: true, term: Some("xterm".into()), ..Evidence::default() };
        let coloured = |no_color: Option<&str>, term: &str| {
            let no_color = no_color.map(str::to_owned);
            screen(&Evidence { no_color, term: Some(term.to_owned()), ..seen.clone() }).is_coloured
        };
        assert!(coloured(None, "xterm") && coloured(Some(""), "xterm"));
        assert!(!coloured(Some("1"), "xterm") && !coloured(None, "dumb"));
        let plain = Screen::default();
        assert_eq!(plain.paint(Colour::Red, "FAIL"), "FAIL");
        let painted = Screen { is_coloured: true, ..plain }.paint(Colour::Red, "FAIL");
        assert_eq!(painted, "\u{1b}[31mFAIL\u{1b}[0m");
    }

    #[test]
    fn lines_break_between_words_alone() {
        assert_eq!(wrapped("one two three", Some(9), "- ", "  "), "- one two\n  three");
        assert_eq!(wrapped("one  two", None, "- ", "  "), "- one  two");
        assert_eq!(wrapped("a verylongwordindeed b", Some(6), "", ""), "a\nverylongwordindeed\nb");
    }
}
