//! How results are printed: kubectl's forms, one style of JSON.
//!
//! JSON and YAML have names in camel case. What is a list is an object whose `items` are an array, so that fields can join it.

mod yaml;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::{
    table::{Column, Form, lay},
    terminal::Screen,
};

/// How to print what is no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// JSON, for programs.
    Json,
    /// The same in YAML.
    Yaml,
}

impl Format {
    /// The object for programs; `None` for people.
    pub(super) fn of_programs(self, object: &Value) -> Option<String> {
        match self {
            Self::Text => None,
            Self::Json => Some(json_text(object)),
            Self::Yaml => Some(yaml::text(object)),
        }
    }
}

/// How to print a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// For people: a table; on a terminal columns are left out that do not fit.
    #[value(alias = "text")]
    Table,
    /// The table with all columns.
    Wide,
    /// JSON: an object with a list, items.
    Json,
    /// The same in YAML.
    Yaml,
    /// A line for each: TYPE/NAME.
    Name,
}

/// Options of what prints a list.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct ListOptions {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table, value_name = "FORM")]
    pub(super) output: ListFormat,
    /// Leave the line of headings out.
    #[arg(long)]
    no_headers: bool,
}

/// A field of JSON: its name and what it is.
pub(super) type Field = (&'static str, &'static str);

/// One of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// Its name among those of its type.
    pub(super) name: String,
    /// A cell for each column.
    pub(super) cells: Vec<String>,
    /// All that is known of it, in the order of the list's fields.
    pub(super) object: Value,
}

/// A list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    /// What each is, in one word, as in `disk/NAME`.
    pub(super) kind: &'static str,
    /// The columns of its table.
    pub(super) columns: Vec<Column>,
    /// The list itself.
    pub(super) items: Vec<Item>,
    /// What JSON says beside the items.
    pub(super) about: Map<String, Value>,
    /// What follows the table.
    pub(super) footer: Option<String>,
    /// What is said of a list of nothing.
    pub(super) nothing: String,
}

/// What is printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Printed {
    /// The result, for stdout.
    pub(super) result: String,
    /// What a person is told beside it, for stderr.
    pub(super) aside: String,
}

impl Printed {
    /// Prints it.
    pub(super) fn print(&self) {
        print!("{}", self.result);
        eprint!("{}", self.aside);
    }
}

impl List {
    /// A list of which no more is said than its items.
    pub(super) fn new(kind: &'static str, columns: &[Column], items: Vec<Item>) -> Self {
        let nothing = format!("there is no {kind}");
        Self { kind, columns: columns.to_vec(), items, about: Map::new(), footer: None, nothing }
    }

    /// The same list without the columns of these headings.
    pub(super) fn without(mut self, heads: &[&str]) -> Self {
        let stays: Vec<bool> = self.columns.iter().map(|column| !heads.contains(&column.head)).collect();
        for item in &mut self.items {
            let mut stays = stays.iter();
            item.cells.retain(|_| stays.next() == Some(&true));
        }
        self.columns.retain(|column| !heads.contains(&column.head));
        self
    }

    /// The list as it is asked for.
    pub(super) fn printed(&self, options: &ListOptions, screen: Screen) -> Printed {
        let result = |result: String| Printed { result, aside: String::new() };
        match options.output {
            ListFormat::Json => result(json_text(&self.object())),
            ListFormat::Yaml => result(yaml::text(&self.object())),
            ListFormat::Name => {
                result(self.items.iter().map(|item| format!("{}/{}\n", self.kind, item.name)).collect())
            }
            ListFormat::Table | ListFormat::Wide => self.table(options, screen),
        }
    }

    fn table(&self, options: &ListOptions, screen: Screen) -> Printed {
        let footer = self.footer.as_ref().map_or_else(String::new, |footer| format!("\n{footer}\n"));
        if self.items.is_empty() {
            // As kubectl: a program that reads lines gets none.
            return Printed { result: footer.trim_start().to_owned(), aside: format!("{}\n", self.nothing) };
        }
        let is_wide = options.output == ListFormat::Wide;
        let form = Form { has_heads: !options.no_headers, is_wide, width: screen.width };
        let rows: Vec<Vec<String>> = self.items.iter().map(|item| item.cells.clone()).collect();
        let laid = lay(&self.columns, &rows, form);
        let aside = match &laid.left_out[..] {
            [] => String::new(),
            all => format!("(no room for {}; -o wide shows all)\n", all.join(", ")),
        };
        Printed { result: laid.text + &footer, aside }
    }

    /// What programs get.
    pub(super) fn object(&self) -> Value {
        let mut object = self.about.clone();
        object.insert("items".to_owned(), self.items.iter().map(|item| item.object.clone()).collect());
        object.into()
    }
}

/// Words as one name: `used by` as `usedBy`.
pub(super) fn camel_case<'a>(mut words: impl Iterator<Item = &'a str>) -> String {
    let first = words.next().unwrap_or_default().to_lowercase();
    words.fold(first, |name, word| {
        let mut chars = word.chars();
        let head: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
        name + &head + chars.as_str()
    })
}

/// The same value with names in camel case: `waits_for` is `waitsFor`. Only for values whose names are all of this program.
pub(super) fn in_camel_case(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().map(|(name, value)| (camel_case(name.split('_')), in_camel_case(value))).collect()
        }
        Value::Array(all) => all.into_iter().map(in_camel_case).collect(),
        other => other,
    }
}

/// JSON as it is printed: indented, in ASCII alone, so that no name in it steers a terminal.
pub(super) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for char in format!("{value:#}\n").chars() {
        if char.is_ascii() && char != '\u{7f}' {
            text.push(char);
        } else {
            let mut units = [0; 2];
            char.encode_utf16(&mut units).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

/// The fields of a list's objects, as help shows them.
pub(super) fn fields_help(fields: &[Field]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, what): &Field| format!("  {name:<width$}  {what}");
    format!(
        "Fields of each of the items of -o json and -o yaml:\n{}",
        fields.iter().map(line).collect::<Vec<_>>().join("\n")
    )
}

/// The texts with a comma between them, or what a cell without a value shows.
pub(super) fn joined(texts: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = texts.into_iter().collect();
    if all.is_empty() { super::table::NONE.to_owned() } else { all.join(",") }
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Field, List, Value};

    /// The names of an object, nested ones included, that are in no camel case.
    pub(in super::super) fn odd_names(value: &Value) -> Vec<String> {
        let is_camel = |name: &str| {
            name.starts_with(|char: char| char.is_ascii_lowercase())
                && name.chars().all(|char| char.is_ascii_alphanumeric())
        };
        match value {
            Value::Object(map) => map
                .iter()
                .flat_map(|(name, value)| {
                    let odd = (!is_camel(name)).then(|| name.clone());
                    odd.into_iter().chain(odd_names(value))
                })
                .collect(),
            Value::Array(all) => all.iter().flat_map(odd_names).collect(),
            _ => vec![],
        }
    }

    /// Fails unless the objects of a list have the fields that help shows, in that order, and its rows a cell for each column.
    pub(in super::super) fn assert_regular(list: &List, fields: &[Field]) {
        assert!(!list.items.is_empty(), "no {} to look at", list.kind);
        for item in &list.items {
            let names: Vec<&str> = item.object.as_object().unwrap().keys().map(String::as_str).collect();
            let shown: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, shown, "{}", list.kind);
            assert_eq!(item.cells.len(), list.columns.len(), "{}", list.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::table::Shown, *};

    const COLUMNS: [Column; 2] = [Column::new("NAME", Shown::Always), Column::new("SIZE", Shown::WithRoom(1))];

    fn list() -> List {
        let item = |name: &str| Item {
            name: name.to_owned(),
            cells: vec![name.to_owned(), "8 GiB".to_owned()],
            object: json!({"name": name, "sizeGib": 8}),
        };
        List::new("disk", &COLUMNS, vec![item("a"), item("bé")])
    }

    fn printed(list: &List, output: ListFormat, no_headers: bool, width: Option<usize>) -> Printed {
        list.printed(&ListOptions { output, no_headers }, Screen { width, ..Screen::default() })
    }

    #[test]
    fn the_forms_of_a_list_are_those_of_kubectl() {
        let text = |output| printed(&list(), output, false, None).result;
        assert_eq!(text(ListFormat::Table), "NAME  SIZE\na     8 GiB\nbé    8 GiB\n");
        assert_eq!(printed(&list(), ListFormat::Table, true, None).result, "a   8 GiB\nbé  8 GiB\n");
        assert_eq!(text(ListFormat::Name), "disk/a\ndisk/bé\n");
        assert_eq!(text(ListFormat::Yaml), "items:\n- name: a\n  sizeGib: 8\n- name: \"bé\"\n  sizeGib: 8\n");
        let json = text(ListFormat::Json);
        assert!(json.is_ascii(), "{json}");
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed, json!({"items": [{"name": "a", "sizeGib": 8}, {"name": "bé", "sizeGib": 8}]}));
        assert_eq!(testing::odd_names(&parsed), Vec::<String>::new());
        assert_eq!(testing::odd_names(&json!({"a_b": [{"Cd": 1}]})), ["a_b", "Cd"]);
        let renamed = in_camel_case(json!({"waits_for": [{"seconds_ago": "a_b", "x": null}]}));
        assert_eq!(renamed, json!({"waitsFor": [{"secondsAgo": "a_b", "x": null}]}));
    }

    #[test]
    fn what_is_left_out_and_what_is_not_there_is_said_beside_the_result() {
        let narrow = printed(&list(), ListFormat::Table, false, Some(6));
        assert_eq!(
            (narrow.result.as_str(), narrow.aside.as_str()),
            ("NAME\na\nbé\n", "(no room for SIZE; -o wide shows all)\n")
        );
        let none = List::new("disk", &COLUMNS, vec![]);
        let none = printed(&none, ListFormat::Table, false, None);
        assert_eq!((none.result.as_str(), none.aside.as_str()), ("", "there is no disk\n"));
    }
}
