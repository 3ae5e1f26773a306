//! Which known name a misspelt one probably means.

/// The candidate with the fewest differing letters, in any letter case. `None` where more than a quarter of a
/// candidate's letters differ from all of them: it would mislead more often than help.
pub fn nearest<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let written = written.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&written, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be typed, dropped or replaced to get from one text to the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_with_the_fewest_differing_letters_is_meant_and_none_that_differs_in_more_than_a_quarter() {
        let names = ["vnetName", "subnetName", "tags", "vnetResourceGroup"];
        for (written, meant) in [
            ("vnettName", Some("vnetName")),
            ("VNETNAME", Some("vnetName")),
            ("subNetNames", Some("subnetName")),
            ("tag", Some("tags")),
            ("vnetResorceGrop", Some("vnetResourceGroup")),
            ("ta", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), meant, "{written}");
        }
    }
}
