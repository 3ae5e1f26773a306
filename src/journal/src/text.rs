//! Records as sentences, and times as people read them. Names come from Kubernetes and Azure: what a terminal would obey is
//! printed as an escape.

use std::time::Duration;

use crate::{
    note::Subject,
    store::{Other, RecordView, Story},
};

/// A name as it is printed: without control characters, and without what changes the direction or the place of text.
pub fn printable(text: &str) -> String {
    let is_quoted = |char: char| matches!(char, '"' | '\'' | '\\');
    let mut printed = String::with_capacity(text.len());
    for char in text.chars() {
        if is_quoted(char) || char.is_ascii_graphic() || char == ' ' {
            printed.push(char);
        } else {
            printed.extend(char.escape_debug());
        }
    }
    printed
}

/// The name of an object of Azure without what all ids begin with, and every other name as it is.
pub(crate) fn short_name(name: &str) -> String {
    if !name.starts_with('/') {
        return name.to_owned();
    }
    let segments: Vec<&str> = name.split('/').collect();
    let at = |from_end: usize| segments.len().checked_sub(from_end).and_then(|at| segments.get(at)).copied();
    match (at(4), at(3), at(1)) {
        // An instance is called by a number alone.
        (Some(of), Some(set), Some(number)) if of.eq_ignore_ascii_case("virtualMachineScaleSets") => {
            format!("{set}/{number}")
        }
        (_, _, Some(last)) => last.to_owned(),
        _ => name.to_owned(),
    }
}

/// What an object is called in a sentence.
pub(crate) fn called(subject: Subject, name: &str) -> String {
    format!("{} {}", subject.text(), short_name(name))
}

/// The sentence of a record, with the names as they are.
pub(crate) fn sentence(record: &RecordView) -> String {
    let key = match &record.other {
        Other::None => None,
        Other::Forgotten => Some("an object whose name is kept no more".to_owned()),
        Other::Named(subject, name) => Some(called(*subject, name)),
    };
    let mut text = String::new();
    // The parts in brackets alternate with those outside of them.
    for (place, part) in record.word.text().split(['[', ']']).enumerate() {
        let is_optional = place % 2 == 1;
        let lacks = part.contains("{key}") && key.is_none() || part.contains("{n}") && record.number.is_none();
        if is_optional && lacks {
            continue;
        }
        let number = record.number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let part = part.replace("{n}", &number);
        // Last: a name may hold what looks like a placeholder.
        text.push_str(&part.replace("{key}", key.as_deref().unwrap_or("another object")));
    }
    if let Some(cause) = record.cause {
        text.push_str(": ");
        text.push_str(cause);
    }
    if record.times > 1 {
        let times =
            if record.times == u8::MAX { "255 times or more".to_owned() } else { format!("{} times", record.times) };
        text.push_str(&format!(" ({times})"));
    }
    text
}

/// How long something took: its two greatest units.
pub(crate) fn duration(of: Duration) -> String {
    let seconds = of.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes, seconds) {
        (1.., ..) => format!("{days} d {} h", hours % 24),
        (_, 1.., ..) => format!("{hours} h {} min", minutes % 60),
        (_, _, 1.., _) => format!("{minutes} min {} s", seconds % 60),
        (_, _, _, 1..) => format!("{seconds} s"),
        _ => format!("{} ms", of.as_millis()),
    }
}

/// A moment in UTC, from the time since the epoch of Unix.
pub(crate) fn utc(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The date of a day since 1970-01-01 in the Gregorian calendar (source: Howard Hinnant, chrono-compatible low-level date
/// algorithms, `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

impl Story {
    /// What is known of the object, a line each, with times since the start of the process: for a log.
    pub fn lines(&self) -> Vec<String> {
        let seconds = |at: Duration| at.as_millis() as f64 / 1_000.0;
        let name = called(self.subject, &self.name);
        let head = format!("{name} {}, since {:.1} s", self.standing.text(), seconds(self.since));
        let line = |record: &RecordView| {
            format!("{:>10.3} s  {:<7}  {}", seconds(record.at), record.word.group().text(), sentence(record))
        };
        let lines = [head].into_iter().chain(self.records.iter().map(line));
        lines.map(|line| printable(&line)).collect()
    }
}

/// Breaks a text into lines of this width. The first line begins with the first indent, those after it with the other. A
/// word that is longer than a line is broken.
pub(crate) fn wrapped(text: &str, width: usize, (first, indent): (usize, usize)) -> String {
    // In a narrow terminal the text stays legible and the terminal breaks it.
    let width = width.max(first.max(indent) + 20);
    let mut lines = vec![" ".repeat(first)];
    let (mut used, mut is_begun) = (first, false);
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if is_begun && used + 1 + rest.len() > width {
            lines.push(" ".repeat(indent));
            (used, is_begun) = (indent, false);
        }
        if is_begun {
            lines.last_mut().expect("there is a line").push(' ');
            used += 1;
        }
        while used + rest.len() > width {
            let head: String = rest.drain(..width - used).collect();
            lines.last_mut().expect("there is a line").push_str(&head);
            lines.push(" ".repeat(indent));
            used = indent;
        }
        used += rest.len();
        lines.last_mut().expect("there is a line").extend(rest);
        is_begun = true;
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Word;

    #[test]
    fn names_cannot_steer_a_terminal() {
        for (text, printed) in [
            ("default/web", "default/web"),
            ("it's \"x\\y\"", "it's \"x\\y\""),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("a\r\nb\t\u{9b}2J", "a\\r\\nb\\t\\u{9b}2J"),
            ("evil\u{202e}txt\u{200b}", "evil\\u{202e}txt\\u{200b}"),
            ("Zürich", "Zürich"),
        ] {
            assert_eq!(printable(text), printed);
        }
    }

    #[test]
    fn a_sentence_leaves_out_what_the_record_lacks() {
        let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/node-0";
        let instance = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/7";
        let named = |name: &str| Other::Named(Subject::Vm, name.into());
        let record =
            |word, number, cause, other, times| RecordView { at: Duration::ZERO, times, word, number, cause, other };
        for (record, expected) in [
            (record(Word::PlansAttach, Some(3), None, named(vm), 1), "plans the attach to VM node-0 at LUN 3"),
            (record(Word::PlansAttach, None, None, named(instance), 1), "plans the attach to VM pool/7"),
            (
                record(Word::AwaitsPermit, None, None, Other::None, 3),
                "a permit to write: Azure takes only so many requests (3 times)",
            ),
            (
                record(Word::WriteRefused, Some(409), Some("Azure is busy"), named(vm), 1),
                "Azure has refused the write of VM node-0 with status 409: Azure is busy",
            ),
            (record(Word::DetachAsked, None, None, Other::None, 255), "the detach is requested (255 times or more)"),
            (
                record(Word::AttachAsked, None, None, Other::Forgotten, 1),
                "the attach to an object whose name is kept no more is requested",
            ),
            (record(Word::VmNotRead, Some(1), None, named("{n}[x]{key}"), 1), "VM {n}[x]{key} cannot be read"),
        ] {
            assert_eq!(sentence(&record), expected);
        }
    }

    #[test]
    fn times_and_durations_are_as_people_write_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_772_323_199, "2026-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), text);
        }
        assert_eq!(utc(Duration::from_millis(1_007)), "1970-01-01T00:00:01.007Z");
        for (milliseconds, text) in [
            (17, "17 ms"),
            (59_999, "59 s"),
            (192_000, "3 min 12 s"),
            (3_600_000, "1 h 0 min"),
            (200_000_000, "2 d 7 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_word_is_lost() {
        let text =
            "asked    the attach to VM node-0 is requested by /subscriptions/1234567890/resourceGroups/abcdefghij";
        for width in 30..120 {
            let wrapped = wrapped(text, width, (2, 9));
            assert!(wrapped.lines().all(|line| line.chars().count() <= width), "{width}:\n{wrapped}");
            assert!(wrapped.lines().skip(1).all(|line| line.starts_with("         ")), "{width}:\n{wrapped}");
            let without = |text: &str| text.chars().filter(|char| !char.is_whitespace()).collect::<String>();
            assert_eq!(without(&wrapped), without(text));
        }
        assert_eq!(wrapped("a  b c", 30, (2, 4)), "  a  b c");
    }
}
