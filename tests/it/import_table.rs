//! Which room may import which: the table, and the reader that holds the source to it.
//!
//! Rooms are the modules of the root package (`src/NAME`) and the member crates. Cargo already keeps
//! member crates apart; this keeps the modules apart, and the manifests of the members honest. The
//! reader works on text: it drops comments and literals, then looks for paths that begin at
//! `crate::`, at a chain of `super::` that leaves the room, or at a member crate's name. It never
//! resolves names: a path it cannot place is not reported.
//!
//! Test code (a `#[cfg(test)]` module, a file that only such a module loads) may name the emulator
//! and the API server too: tests speak to a server, not to a mock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The import table as `src/lib.rs` shows it to readers: a room, and the rooms it may import.
type Table = BTreeMap<String, BTreeSet<String>>;

/// Member crates: the room, its package name, its name in code and the folder of its manifest.
const MEMBERS: &[(&str, &str, &str, &str)] = &[
    ("plan", "lazuli-plan", "lazuli_plan", "src/plan"),
    ("azure", "lazuli-azure", "lazuli_azure", "src/azure"),
    ("emulator", "lazuli-emulator", "lazuli_emulator", "src/emulator"),
    ("apiserver", "lazuli-apiserver", "lazuli_apiserver", "src/apiserver"),
    ("csi-proto", "csi-proto", "csi_proto", "proto"),
];

/// The servers that tests of any room may start.
const SERVERS_FOR_TESTS: &[&str] = &["emulator", "apiserver"];

/// Reads the table out of the documentation of `lib.rs`: the rows below `| level | room | may import |`.
fn table_in(documentation: &str) -> Table {
    let rows: Vec<(Vec<String>, String)> = documentation
        .lines()
        .skip_while(|line| !(line.starts_with("//! |") && line.contains("may import")))
        .skip(2)
        .map_while(|line| {
            let cells: Vec<&str> = line.strip_prefix("//! |")?.split('|').collect();
            let [_, rooms, imports, ..] = cells.as_slice() else {
                return None;
            };
            Some((names_in(rooms), imports.trim().to_owned()))
        })
        .collect();
    let all: BTreeSet<String> = rows.iter().flat_map(|(rooms, _)| rooms.iter().cloned()).collect();
    let mut table = Table::new();
    for (rooms, imports) in rows {
        let may: BTreeSet<String> = match imports.as_str() {
            "nothing of ours" => BTreeSet::new(),
            every if every.starts_with("all") => all.clone(),
            some => names_in(some).into_iter().collect(),
        };
        for room in rooms {
            let others = may.iter().filter(|other| **other != room).cloned().collect();
            table.insert(room, others);
        }
    }
    // The binary parses and runs; everything else is behind the command line.
    table.insert("main".to_owned(), BTreeSet::from(["cli".to_owned()]));
    table
}

/// The rooms a cell lists: links, code marks, crate prefixes and remarks in brackets are decoration.
fn names_in(cell: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut depth = 0_usize;
    for character in cell.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '`' | '[' | ']' => {}
            other if depth == 0 => plain.push(other),
            _ => {}
        }
    }
    plain
        .split(',')
        .map(|name| name.trim().trim_start_matches("lazuli-").to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The table that this source tree documents.
fn table_of(root: &Path) -> Table {
    table_in(&fs::read_to_string(root.join("src/lib.rs")).expect("a readable lib.rs"))
}

/// Blanks comments, strings and character literals, so that what is left are names and punctuation.
fn code_of(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let next = text.get(at + 1).copied();
        let before = at.checked_sub(1).map(|i| text[i]);
        let in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        match text[at] {
            '/' if next == Some('/') => {
                while at < text.len() && text[at] != '\n' {
                    at += 1;
                }
            }
            '/' if next == Some('*') => {
                let mut depth = 0;
                while at < text.len() {
                    match (text[at], text.get(at + 1)) {
                        ('/', Some('*')) => {
                            depth += 1;
                            at += 2;
                        }
                        ('*', Some('/')) => {
                            depth -= 1;
                            at += 2;
                        }
                        _ => at += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            // A raw string: as many `#` close it as opened it. `b` and `c` prefixes end in this `r`.
            'r' if (!in_name || matches!(before, Some('b' | 'c'))) && matches!(next, Some('"' | '#')) => {
                let hashes = text[at + 1..].iter().take_while(|c| **c == '#').count();
                if text.get(at + 1 + hashes) != Some(&'"') {
                    out.push('r'); // a raw identifier, `r#type`
                    at += 1;
                    continue;
                }
                at += 2 + hashes;
                while at < text.len()
                    && !(text[at] == '"' && text[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes)
                {
                    at += 1;
                }
                at += 1 + hashes;
                out.push_str("\"\"");
            }
            '"' => {
                at += 1;
                while at < text.len() && text[at] != '"' {
                    at += if text[at] == '\\' { 2 } else { 1 };
                }
                at += 1;
                out.push_str("\"\"");
            }
            // A character literal; a lifetime has no closing quote and is kept.
            '\'' if next == Some('\\') => {
                at += 3; // the escaped character may itself be a quote
                while at < text.len() && text[at] != '\'' {
                    at += 1;
                }
                at += 1;
            }
            '\'' if text.get(at + 2) == Some(&'\'') => at += 3,
            other => {
                out.push(other);
                at += 1;
            }
        }
    }
    out
}

/// Names and punctuation; `::` is one token.
fn tokens(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            found.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    found
}

/// Index just after the bracket that closes the one at `open`.
fn after_block(tokens: &[String], open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens[open..].iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Splits a file's tokens into production code and the bodies of its `#[cfg(test)]` items; also tells
/// which modules are loaded from files for tests only.
fn split_tests(tokens: &[String]) -> (Vec<String>, Vec<String>, BTreeSet<String>) {
    let (mut code, mut tests, mut files) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut at = 0;
    while at < tokens.len() {
        let here = &tokens[at..];
        if !here.iter().map(String::as_str).take(7).eq(["#", "[", "cfg", "(", "test", ")", "]"]) {
            code.push(tokens[at].clone());
            at += 1;
            continue;
        }
        // To the end of the item: its block, or its semicolon.
        let end = (at..tokens.len()).find(|i| matches!(tokens[*i].as_str(), "{" | ";")).unwrap_or(tokens.len() - 1);
        let item = &tokens[at..=end];
        if let Some(keyword) = item.iter().position(|token| token == "mod")
            && tokens[end] == ";"
            && let Some(name) = item.get(keyword + 1)
        {
            files.insert(name.clone());
        }
        let next = if tokens[end] == "{" { after_block(tokens, end) } else { end + 1 };
        tests.extend_from_slice(&tokens[at..next]);
        at = next;
    }
    (code, tests, files)
}

/// The first names behind a path's prefix: one for `::name`, several for `::{a, b::c}`.
fn names_behind(tokens: &[String], separator: usize) -> Vec<String> {
    match tokens.get(separator + 1).map(String::as_str) {
        Some("{") => {
            let end = after_block(tokens, separator + 1);
            let (mut depth, mut names, mut fresh) = (0, Vec::new(), true);
            for token in &tokens[separator + 1..end] {
                match token.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," if depth == 1 => {
                        fresh = true;
                        continue;
                    }
                    name if depth == 1 && fresh => {
                        names.push(name.to_owned());
                        fresh = false;
                    }
                    _ => {}
                }
                if token == "{" && depth == 1 {
                    fresh = true;
                }
            }
            names
        }
        Some(name) => vec![name.to_owned()],
        None => Vec::new(),
    }
}

/// Every room that these tokens name. `depth` is how many modules the file is below the crate's root.
fn rooms_named<'a>(tokens: &[String], depth: usize, rooms: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let mut named = BTreeSet::new();
    let mut add = |name: &str| {
        if let Some(room) = rooms.get(name) {
            named.insert(*room);
        }
    };
    let mut at = 0;
    while at < tokens.len() {
        let begins = at == 0 || tokens[at - 1] != "::";
        match tokens[at].as_str() {
            "crate" | "lazuli" if begins && tokens.get(at + 1).is_some_and(|t| t == "::") => {
                names_behind(tokens, at + 1).iter().for_each(|name| add(name));
            }
            "super" if begins => {
                let mut levels = 1;
                let mut end = at;
                while tokens.get(end + 1).is_some_and(|t| t == "::")
                    && tokens.get(end + 2).is_some_and(|t| t == "super")
                {
                    levels += 1;
                    end += 2;
                }
                if levels >= depth && tokens.get(end + 1).is_some_and(|t| t == "::") {
                    names_behind(tokens, end + 1).iter().for_each(|name| add(name));
                }
                at = end;
            }
            name if begins => {
                if let Some((room, ..)) = MEMBERS.iter().find(|member| member.2 == name) {
                    add(room);
                }
            }
            _ => {}
        }
        at += 1;
    }
    named
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// One file of the root package, in tokens.
struct Source {
    /// Its module path below the crate's root.
    module: Vec<String>,
    code: Vec<String>,
    /// What only a test build compiles.
    tests: Vec<String>,
    /// Modules that it loads from files for tests only.
    test_files: BTreeSet<String>,
}

/// Where the source of the root package breaks the table, one line per file and room.
fn wrong_imports_in_source(root: &Path, table: &Table) -> Vec<String> {
    let rooms: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    let source = root.join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    files.sort();

    let parsed: Vec<Source> = files
        .iter()
        .filter_map(|path| {
            let within = path.strip_prefix(&source).ok()?;
            let mut module: Vec<String> =
                within.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            let room = module.first()?;
            // Member crates live under src/ too; their manifests are what binds them. lib.rs declares
            // the rooms and imports none.
            if room == "lib" || MEMBERS.iter().any(|member| member.3 == format!("src/{room}")) {
                return None;
            }
            let text = fs::read_to_string(path).expect("a readable source file");
            let (code, tests, test_files) = split_tests(&tokens(&code_of(&text)));
            Some(Source { module, code, tests, test_files })
        })
        .collect();

    let only_for_tests: BTreeSet<Vec<String>> = parsed
        .iter()
        .flat_map(|Source { module, test_files, .. }| {
            test_files.iter().map(|name| [module.as_slice(), std::slice::from_ref(name)].concat())
        })
        .collect();

    let mut wrong = Vec::new();
    for Source { module, code, tests, .. } in &parsed {
        let shown = module.join("::");
        let room = module[0].as_str();
        let Some(may) = table.get(room) else {
            wrong.push(format!("{shown}: `{}` is not in the table of rooms", module[0]));
            continue;
        };
        let in_tests = only_for_tests.iter().any(|prefix| module.starts_with(prefix));
        let mut check = |part: &[String], is_test: bool| {
            for named in rooms_named(part, module.len(), &rooms) {
                let allowed = named == room || may.contains(named) || (is_test && SERVERS_FOR_TESTS.contains(&named));
                if !allowed {
                    wrong.push(format!("{shown}: `{room}` may not import `{named}`"));
                }
            }
        };
        check(code, in_tests);
        check(tests, true);
    }
    wrong
}

/// Where a member's manifest breaks the table.
fn wrong_imports_in_manifests(root: &Path, table: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for (room, package, _, folder) in MEMBERS {
        let Ok(manifest) = fs::read_to_string(root.join(folder).join("Cargo.toml")) else {
            continue;
        };
        let mut section = "";
        for line in manifest.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']');
            }
            if !section.contains("dependencies") || line.starts_with('#') {
                continue;
            }
            // `name = …`, `name.workspace = true` and `[dependencies.name]` all name a dependency.
            let written = line.strip_prefix('[').map_or_else(
                || line.split(['=', '.', ' ']).next().unwrap_or_default(),
                |header| header.trim_end_matches(']').rsplit('.').next().unwrap_or_default(),
            );
            let Some((other, ..)) = MEMBERS.iter().find(|member| member.1 == written) else {
                continue;
            };
            let for_tests = section.contains("dev-dependencies") && SERVERS_FOR_TESTS.contains(other);
            if !table.get(*room).is_some_and(|may| may.contains(*other)) && !for_tests {
                wrong.push(format!("{package}: `{room}` may not depend on `{other}`"));
            }
        }
    }
    wrong
}

#[test]
fn the_table_has_no_cycle() {
    fn visit<'a>(room: &'a str, table: &'a Table, path: &mut Vec<&'a str>) {
        assert!(!path.contains(&room), "{path:?} comes back to {room}");
        path.push(room);
        for next in &table[room] {
            visit(next, table, path);
        }
        path.pop();
    }
    let table = table_of(Path::new(env!("CARGO_MANIFEST_DIR")));
    for room in table.keys() {
        visit(room, &table, &mut Vec::new());
    }
}

#[test]
fn the_source_keeps_to_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wrong = wrong_imports_in_source(root, &table_of(root));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_manifests_keep_to_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wrong = wrong_imports_in_manifests(root, &table_of(root));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A table for the small trees below, in the words of `lib.rs`.
fn sample() -> Table {
    table_in(
        "//! Rooms.\n//!\n//! | level | room | may import |\n//! |---|---|---|\n\
         //! | 0 | `lazuli-plan` (decisions, pure), `csi-proto`, `lazuli-emulator` | nothing of ours |\n\
         //! | 1 | `lazuli-azure` (the client), [`config`] | plan |\n\
         //! | 1 | [`telemetry`] (logs, `/metrics`) | nothing of ours |\n\
         //! | 2 | [`host`] (devices) | plan |\n\
         //! | 3 | [`disk`] | plan, azure, config, telemetry |\n\
         //! | 4 | [`csi`] | csi-proto, plan, disk, host |\n\
         //! | 5 | [`cli`] (`wire`) | all; alone names the emulator |\n//!\n\
         //! | another | table | of three |\n\npub mod cli;\n",
    )
}

#[test]
fn the_table_is_read_from_the_documentation() {
    let table = sample();
    let may = |room: &str| table[room].iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(table.len(), 11, "{:?}", table.keys());
    assert_eq!(may("emulator"), "");
    assert_eq!(may("config"), "plan");
    assert_eq!(may("disk"), "azure config plan telemetry");
    assert_eq!(may("cli"), "azure config csi csi-proto disk emulator host plan telemetry");
    assert_eq!(may("main"), "cli");
}

#[test]
fn the_documented_table_is_not_empty_and_only_the_command_line_names_the_emulator() {
    let table = table_of(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(table.len() > 8, "the table in lib.rs was not understood: {table:?}");
    for (room, may) in table.iter().filter(|(room, _)| *room != "cli") {
        assert!(!SERVERS_FOR_TESTS.iter().any(|server| may.contains(*server)), "{room} names a server");
    }
}

/// A small tree that is removed at the end of its test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Tree {
        let root = std::env::temp_dir().join(format!("lazuli-imports-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
            fs::write(path, text).expect("the file is written");
        }
        Tree(root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Left behind at worst: a few bytes in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_wrong_import_is_found_in_each_of_its_spellings() {
    let wrong = "`disk` may not import `host`";
    for (number, text) in [
        "use crate::host::mount;",
        "use crate::{config, host};",
        "use crate::{\n    config::{self, Cloud},\n    host::{mount, format},\n};",
        "fn f() { crate::host::mount() }",
        "use super::host::mount;",
        "mod inner { use super::super::host; }",
        "fn f() -> &'static str { let _ = 'x'; crate::host::NAME }",
        "const A: &str = r#\"\"quote\"#; use crate::host::mount;",
        "pub use lazuli::host;",
    ]
    .into_iter()
    .enumerate()
    {
        let tree = Tree::new(&format!("spelling-{number}"), &[("src/disk/mod.rs", text)]);
        let found = wrong_imports_in_source(&tree.0, &sample());
        assert!(found.iter().any(|line| line.ends_with(wrong)), "{text}: {found:?}");
    }
}

#[test]
fn what_only_looks_like_an_import_is_left_alone() {
    let tree = Tree::new(
        "harmless",
        &[
            (
                "src/disk/mod.rs",
                "//! Never uses crate::host.\n/* crate::host /* crate::csi */ */\n\
                 use crate::{config, telemetry};\nuse lazuli_plan::model;\n\
                 fn f(host: &str) -> String { format!(\"crate::host {host}\") }\n\
                 const RAW: &str = r##\"use crate::csi; \"# \"##;\nmod host;\nuse self::host::X;",
            ),
            ("src/disk/host.rs", "use super::Thing;"),
            ("src/disk/deep/inner.rs", "use super::super::host::X;"),
            ("src/cli/mod.rs", "use crate::{csi, disk, host}; use lazuli_emulator::Emulator;"),
            ("src/lib.rs", "pub mod disk; pub mod cli;"),
            ("src/main.rs", "use lazuli::cli; fn main() { cli::run() }"),
            ("src/plan/src/lib.rs", "use crate::host;"),
        ],
    );
    assert_eq!(wrong_imports_in_source(&tree.0, &sample()), Vec::<String>::new());
}

#[test]
fn only_tests_and_the_command_line_may_name_the_emulator() {
    let tree = Tree::new(
        "emulator",
        &[
            (
                "src/disk/mod.rs",
                "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more { use lazuli_emulator::Emulator; }\nfn after() {}",
            ),
            ("src/disk/tests.rs", "use lazuli_emulator::Emulator; use crate::host;"),
            ("src/disk/tests/storm.rs", "use lazuli_emulator::Emulator;"),
            ("src/csi/mod.rs", "use lazuli_emulator::Emulator;"),
            ("src/main.rs", "use lazuli_emulator::Emulator;"),
        ],
    );
    assert_eq!(
        wrong_imports_in_source(&tree.0, &sample()),
        [
            "csi: `csi` may not import `emulator`",
            "disk::tests: `disk` may not import `host`",
            "main: `main` may not import `emulator`",
        ]
    );
}

#[test]
fn a_room_that_the_table_does_not_know_is_reported() {
    let tree = Tree::new("unknown", &[("src/utils/mod.rs", "fn f() {}")]);
    assert_eq!(wrong_imports_in_source(&tree.0, &sample()), ["utils: `utils` is not in the table of rooms"]);
}

#[test]
fn a_wrong_dependency_in_a_manifest_is_found_in_each_of_its_spellings() {
    for (number, text) in [
        "[dependencies]\nlazuli-azure.workspace = true\n",
        "[dependencies]\nlazuli-azure = { path = \"../azure\" }\n",
        "[dependencies.lazuli-azure]\npath = \"../azure\"\n",
        "[build-dependencies]\nlazuli-azure.workspace = true\n",
        "[target.'cfg(unix)'.dependencies]\nlazuli-azure.workspace = true\n",
        "[dev-dependencies]\nlazuli-azure.workspace = true\n",
    ]
    .into_iter()
    .enumerate()
    {
        let tree = Tree::new(&format!("manifest-{number}"), &[("src/emulator/Cargo.toml", text)]);
        assert_eq!(
            wrong_imports_in_manifests(&tree.0, &sample()),
            ["lazuli-emulator: `emulator` may not depend on `azure`"],
            "{text}"
        );
    }
    let tree = Tree::new(
        "manifest-good",
        &[(
            "src/azure/Cargo.toml",
            "[dependencies]\nlazuli-plan.workspace = true\n# lazuli-emulator = 1\nserde = \"1\"\n\
             [dev-dependencies]\nlazuli-emulator.workspace = true\n",
        )],
    );
    assert_eq!(wrong_imports_in_manifests(&tree.0, &sample()), Vec::<String>::new());
}
