//! Tables for people. A table that does not fit is not broken: columns that can be done without are left out, in an order
//! that the table knows; then long cells are shortened in their middle.

use lazuli_journal::printable;

/// What a cell without a value shows.
pub(super) const NONE: &str = "-";
/// The space between two columns.
const GAP: usize = 2;
/// No column is shortened below this.
const SHORTEST: usize = 12;

/// When a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Always.
    Always,
    /// Where there is room. The column with the lowest number is the first to go.
    WithRoom(u8),
    /// In the wide form alone.
    Wide,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    /// Its heading, in capitals.
    pub(super) head: &'static str,
    /// When it is shown.
    pub(super) shown: Shown,
}

impl Column {
    /// A column.
    pub(super) const fn new(head: &'static str, shown: Shown) -> Self {
        Self { head, shown }
    }
}

/// Which form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether a line of headings comes first.
    pub(super) has_heads: bool,
    /// All columns, and every cell whole.
    pub(super) is_wide: bool,
    /// How many columns of a terminal there are; `None` in a pipe, where nothing is left out for want of room.
    pub(super) width: Option<usize>,
}

/// A table as it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Laid {
    /// Its lines, each with its line break.
    pub(super) text: String,
    /// The headings of columns that were left out for want of room.
    pub(super) left_out: Vec<&'static str>,
}

/// Lays a table out. Each row has a cell for every column.
pub(super) fn lay(columns: &[Column], rows: &[Vec<String>], form: Form) -> Laid {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| if cell.is_empty() { NONE.into() } else { printable(cell) }).collect())
        .collect();
    let natural = |at: usize| {
        let head = if form.has_heads { columns[at].head.len() } else { 0 };
        cells.iter().map(|row| row[at].chars().count()).chain([head]).max().unwrap_or_default()
    };
    let is_shown = |at: &usize| form.is_wide || columns[*at].shown != Shown::Wide;
    let mut kept: Vec<(usize, usize)> = (0..columns.len()).filter(is_shown).map(|at| (at, natural(at))).collect();
    let mut left_out = Vec::new();
    if let (Some(room), false) = (form.width, form.is_wide) {
        while total(&kept) > room {
            let rank = |(at, _): &(usize, usize)| match columns[*at].shown {
                Shown::WithRoom(rank) => Some(rank),
                Shown::Always | Shown::Wide => None,
            };
            let Some(first) = kept.iter().filter_map(rank).min() else { break };
            let Some(place) = kept.iter().position(|column| rank(column) == Some(first)) else { break };
            left_out.push(columns[kept.remove(place).0].head);
        }
        shorten(&mut kept, room);
    }
    let head: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    let lines = form.has_heads.then_some(&head).into_iter().chain(&cells);
    let line = |row: &Vec<String>| {
        let cells = kept.iter().map(|(at, width)| format!("{:<width$}", shortened(&row[*at], *width)));
        format!("{}\n", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end())
    };
    Laid { text: lines.map(line).collect(), left_out }
}

fn total(kept: &[(usize, usize)]) -> usize {
    kept.iter().map(|(_, width)| width).sum::<usize>() + GAP * kept.len().saturating_sub(1)
}

/// Takes room from the widest columns until the table fits, or no column can be shortened.
fn shorten(kept: &mut [(usize, usize)], room: usize) {
    while total(kept) > room
        && let Some(widest) = kept.iter_mut().max_by_key(|(_, width)| *width)
        && widest.1 > SHORTEST
    {
        widest.1 -= 1;
    }
}

/// A text of at most `width` characters: both its ends stay, for names differ there.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let tail = width.saturating_sub(1) / 2;
    let head = width.saturating_sub(1) - tail;
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(count - tail).collect();
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("NAME", Shown::Always),
        Column::new("GROUP", Shown::WithRoom(1)),
        Column::new("CLAIM", Shown::WithRoom(2)),
        Column::new("ID", Shown::Wide),
    ];
    const PIPE: Form = Form { has_heads: true, is_wide: false, width: None };

    fn row(cells: [&str; 4]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_go_in_their_order_and_wide_shows_all() {
        let rows = [row(["disk-1", "group", "shop/data", "/subscriptions/s"]), row(["d", "", "-", "/"])];
        let text = |form: Form| lay(&COLUMNS, &rows, form);
        assert_eq!(text(PIPE).text, "NAME    GROUP  CLAIM\ndisk-1  group  shop/data\nd       -      -\n");
        let narrow = text(Form { width: Some(20), ..PIPE });
        assert_eq!(
            (narrow.text.as_str(), &narrow.left_out[..]),
            ("NAME    CLAIM\ndisk-1  shop/data\nd       -\n", &["GROUP"][..])
        );
        let tiny = text(Form { width: Some(8), ..PIPE });
        assert_eq!((tiny.text.as_str(), &tiny.left_out[..]), ("NAME\ndisk-1\nd\n", &["GROUP", "CLAIM"][..]));
        let wide = text(Form { is_wide: true, width: Some(8), has_heads: false });
        assert_eq!(wide.text, "disk-1  group  shop/data  /subscriptions/s\nd       -      -          /\n");
    }

    #[test]
    fn a_long_cell_keeps_both_ends_and_a_cell_cannot_steer_the_terminal() {
        let rows = [row(["pvc-0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11", "g", "c", ""])];
        let narrow = lay(&COLUMNS, &rows, Form { width: Some(15), ..PIPE });
        assert_eq!(narrow.text, "NAME\npvc-0b7…a0c2f11\n");
        let evil = lay(&COLUMNS, &[row(["a\u{1b}[2Jb\n", "", "", ""])], PIPE);
        assert!(evil.text.contains("a\\u{1b}[2Jb\\n"), "{}", evil.text);
    }

    proptest! {
        #[test]
        fn whatever_the_cells_a_table_fits_or_has_nothing_left_to_leave_out(
            cells in proptest::collection::vec(proptest::collection::vec("[a-z/0-9]{0,60}", 4), 0..5),
            width in 1_usize..200,
        ) {
            let laid = lay(&COLUMNS, &cells, Form { width: Some(width), ..PIPE });
            let longest = laid.text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            prop_assert!(longest <= width.max(SHORTEST), "{longest} of {width}:\n{}", laid.text);
            prop_assert_eq!(laid.text.lines().count(), cells.len() + 1);
            // A narrower terminal never shows more columns.
            let narrower = lay(&COLUMNS, &cells, Form { width: Some(width - 1), ..PIPE });
            prop_assert!(narrower.left_out.len() >= laid.left_out.len());
            // In a pipe every cell is whole.
            let whole = lay(&COLUMNS, &cells, PIPE);
            prop_assert!(whole.left_out.is_empty());
            for cell in cells.iter().flat_map(|row| &row[..3]).filter(|cell| !cell.is_empty()) {
                prop_assert!(whole.text.contains(cell.as_str()));
            }
        }
    }
}
