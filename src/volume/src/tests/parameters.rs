//! The table of parameters says what the parser does.

use lazuli_model::reference::Effect;

use super::*;

/// What a class comes to, without what only a person reads and without the context, which repeats the class.
fn outcome(pairs: Pairs<'_>) -> String {
    format!(
        "{:?}",
        plan_create(&request(pairs), &defaults()).map(|plan| (plan.disk, plan.spec, plan.accessible_topology))
    )
}

#[test]
fn every_parameter_of_the_table_does_what_its_row_says() {
    for row in PARAMETERS.iter().chain([&DEVICE_SETTING]) {
        // This one says how another is read.
        let base: Pairs<'_> = if row.name == "tagValueDelimiter" { &[("tags", "a=1;b=2")] } else { &[] };
        let with = |value| outcome(&[base, &[(row.name, value)]].concat());
        let changes = with(row.example) != outcome(base) || with("\u{7}") != outcome(base);
        match row.effect {
            Effect::Used => assert!(changes, "{} counts", row.name),
            Effect::NoEffect => assert_eq!(with(row.example), outcome(base), "{}", row.name),
            Effect::Refused => drop(refused(&[(row.name, row.example)], row.name)),
        }
        if let Some(of) = row.alias_of {
            assert_eq!(with(row.example), outcome(&[(of, row.example)]), "{} is {of}", row.name);
        }
    }
}

#[test]
fn every_row_of_the_table_is_there_once_and_is_written_for_people() {
    for row in PARAMETERS.iter().chain([&DEVICE_SETTING]) {
        let names = PARAMETERS.iter().filter(|other| other.name.eq_ignore_ascii_case(row.name)).count();
        assert_eq!(names, usize::from(row.name != DEVICE_SETTING.name), "{}", row.name);
        assert!(row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.name);
        assert!(!row.values.is_empty() || row.effect == Effect::Refused, "{}", row.name);
    }
}
