//! Which file of a crate imports which, by its `use` lines and by the paths in its code.
//!
//! Cargo keeps circles out between crates; within a crate nothing does. A circle of imports is read as one file: none of
//! its files can be understood, moved or tested without all others. Tests are left out: they may import everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A module by its path from the root of the crate.
type Module = Vec<String>;
/// The files of a crate without its tests.
type Sources = BTreeMap<Module, String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// How many files a circle may have at most.
const MOST: usize = 3;

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|segment| segment.trim().to_owned()).collect()
}

/// Source without comments, without what stands in quotes, and without what is compiled for tests alone.
fn code(source: &str) -> String {
    let mut kept = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            // A module of tests is the last item of a file; any other item for tests has one line.
            match lines.next() {
                Some(item) if item.trim_start().starts_with("mod ") && item.ends_with('{') => break,
                _ => continue,
            }
        }
        let (mut quoted, mut before) = (false, ' ');
        for (at, letter) in line.char_indices() {
            match letter {
                '"' if before != '\\' && before != '\'' => quoted = !quoted,
                '/' if !quoted && line[at..].starts_with("//") => break,
                _ if !quoted => kept.push(letter),
                _ => {}
            }
            before = if letter == '\\' && before == '\\' { ' ' } else { letter };
        }
        kept.push('\n');
    }
    kept
}

/// The sources below a folder.
fn sources(root: &Path, folder: &Path, found: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            sources(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).unwrap().with_extension("");
            let mut module: Module = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if stem == "mod" || module == ["lib"] {
                module.pop();
            }
            found.insert(module, code(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The single paths of a tree such as `a::{b, c::{self, d}}`.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = &rest[..rest.rfind('}').unwrap()];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(paths_of).map(|path| format!("{}{path}", before.trim())).collect()
}

/// The module that a path of `own` leads to, and what is left of the path. `None`: it leaves the crate.
fn resolve(files: &Sources, own: &Module, path: &[String]) -> Option<(Module, Vec<String>)> {
    let mut rest = path.to_vec();
    let mut module = match rest[0].as_str() {
        "crate" => Module::new(),
        "self" | "super" => own.clone(),
        _ => return None,
    };
    while rest.first().is_some_and(|segment| segment == "super") {
        module.pop();
        rest.remove(0);
    }
    if rest.first().is_some_and(|segment| segment == "crate" || segment == "self") {
        rest.remove(0);
    }
    Some(descend(files, module, rest))
}

fn descend(files: &Sources, mut module: Module, mut rest: Vec<String>) -> (Module, Vec<String>) {
    while let Some(next) = rest.first() {
        let mut deeper = module.clone();
        deeper.push(next.clone());
        if !files.contains_key(&deeper) {
            break;
        }
        module = deeper;
        rest.remove(0);
    }
    (module, rest)
}

/// The text of each path with `::` in it.
fn paths_in(code: &str) -> Vec<&str> {
    let belongs = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(|letter: char| !belongs(letter)).map(|word| word.trim_matches(':'));
    words.filter(|word| word.contains("::")).collect()
}

/// What a file imports of its crate.
fn imports(files: &Sources, own: &Module) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut known: BTreeMap<String, Module> = BTreeMap::new();
    let mut body = String::new();
    let mut rest = files[own].as_str();
    while let Some(at) = rest.find("use ").filter(|_| !rest.is_empty()) {
        let is_item = rest[..at].trim_end().ends_with(['}', ';', ')', ']', '{', 'b']) || rest[..at].trim().is_empty();
        body.push_str(&rest[..at]);
        let Some(end) = rest[at..].find(';').filter(|_| is_item) else {
            rest = &rest[at + 4..];
            continue;
        };
        for path in paths_of(&rest[at + 4..at + end]) {
            let (path, alias) =
                path.split_once(" as ").map_or((path.as_str(), None), |(path, alias)| (path, Some(alias)));
            let path = segments(path);
            let Some((module, left)) = resolve(files, own, &path) else { continue };
            // A module that is only named is imported where the code uses it.
            if left.is_empty() || left == ["self"] {
                let name =
                    alias.map_or_else(|| module.last().cloned().unwrap_or_default(), |alias| alias.trim().to_owned());
                known.insert(name, module);
            } else {
                found.insert(module);
            }
        }
        rest = &rest[at + end + 1..];
    }
    body.push_str(rest);
    for path in paths_in(&body) {
        let path = segments(path);
        let target = resolve(files, own, &path).or_else(|| {
            let child = [own.as_slice(), &path[..1]].concat();
            let base = known.get(&path[0]).cloned().or_else(|| files.contains_key(&child).then_some(child))?;
            Some(descend(files, base, path[1..].to_vec()))
        });
        found.extend(target.map(|(module, _)| module));
    }
    found.remove(own);
    found
}

fn reachable(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for import in &graph[module] {
            if graph.contains_key(import) && seen.insert(import.clone()) {
                next.push(import);
            }
        }
    }
    seen
}

/// Sets of files that all import each other, directly or by way of others.
fn circles(files: &Sources) -> BTreeSet<BTreeSet<Module>> {
    let graph: Graph = files.keys().map(|module| (module.clone(), imports(files, module))).collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        graph.keys().map(|module| (module, reachable(&graph, module))).collect();
    let circle = |module: &Module| -> BTreeSet<Module> {
        reach[module].iter().filter(|other| reach[other].contains(module)).cloned().collect()
    };
    graph.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn named(circle: &BTreeSet<Module>) -> Vec<String> {
    circle.iter().map(|module| module.join("::")).collect()
}

#[test]
fn no_circle_of_imports_in_the_emulator_has_more_than_three_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emulator/src");
    let mut files = Sources::new();
    sources(&root, &root, &mut files);
    assert!(files.len() > 100, "only {} files", files.len());
    let found = circles(&files);
    // The scan sees them: a handler of a type works on the state, which carries the types.
    let known = ["answer", "arm::descriptor", "state"].map(str::to_owned);
    assert!(found.iter().any(|circle| named(circle) == known), "{:?}", found.iter().map(named).collect::<Vec<_>>());
    let large: Vec<Vec<String>> = found.iter().filter(|circle| circle.len() > MOST).map(named).collect();
    assert!(large.is_empty(), "circles of more than {MOST} files:\n{large:#?}");
}

#[test]
fn circles_are_found_by_use_lines_by_paths_and_by_modules_that_are_imported() {
    let crate_of = |texts: &[(&str, &str)]| -> Vec<Vec<String>> {
        let files = texts.iter().map(|(module, text)| {
            let module = if module.is_empty() { Module::new() } else { segments(module) };
            (module, code(text))
        });
        circles(&files.collect()).iter().map(named).collect()
    };
    let root = ("", "mod a;\nmod b;\n");
    let pair = [["a", "b"].map(str::to_owned).to_vec()];
    for (a, b) in [
        ("use crate::b::B;\n", "pub(crate) use super::a::{A, C as D};\n"),
        ("use crate::{b, other};\nfn f() { b::f(); }\n", "fn g() -> super::a::A { }\n"),
        (
            "use super::b::{self as c};\nfn f() { c::f(); }\n",
            "use std::fmt;\nuse crate::a;\nfn f() { a::g::<u8>(); }\n",
        ),
    ] {
        assert_eq!(crate_of(&[root, ("a", a), ("b", b)]), pair, "{a}{b}");
    }
    for b in [
        "// use crate::a::A;\n",
        "fn f() -> &'static str { \"crate::a::A\" }\n",
        "#[cfg(test)]\nuse crate::a::A;\n",
        "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        "use crate::a;\n",
    ] {
        assert_eq!(crate_of(&[root, ("a", "use crate::b::B;\n"), ("b", b)]), Vec::<Vec<String>>::new(), "{b}");
    }
    let parent = ("a", "mod c;\nfn f() { c::f(); }\n");
    assert_eq!(crate_of(&[root, parent, ("a::c", "use super::F;\n")]), [["a", "a::c"].map(str::to_owned)]);
}
