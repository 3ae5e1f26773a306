//! What Services have and a new one would not get, and disks that are attached and would not be attached now.
//!
//! The controllers leave it where it is: what works is not broken by it. `doctor` reports it.

use std::time::Duration;

use super::{Finding, Grade, some};

/// The check.
pub const KEPT: &str = "what Services keep";

/// The check of disks.
pub const ATTACHED: &str = "attached disks";

/// A disk that is attached to a Node and would not be attached now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDisk {
    /// The name of the disk.
    pub disk: String,
    /// The Node.
    pub node: String,
    /// Why it would not be attached.
    pub why: String,
}

/// A finding for each disk that stays. `unread` are disks about which Azure was not asked, or did not answer: it is asked for
/// `most` at most, and all answers must come `within` this time.
pub fn disks(kept: &[KeptDisk], unread: &[String], most: usize, within: Duration) -> Vec<Finding> {
    let finding = |KeptDisk { disk, node, why }: &KeptDisk| {
        let text =
            format!("disk {disk} is attached to Node {node} and stays, though its attach would be refused now: {why}");
        Finding::new(ATTACHED, Grade::Note, text)
    };
    let mut findings: Vec<Finding> = kept.iter().map(finding).collect();
    if !unread.is_empty() {
        let text = format!(
            "{} attached disks are not checked, for Azure did not show them (it is asked for {most} at most, and within {} s \
             in all): {}",
            unread.len(),
            within.as_secs(),
            some(unread)
        );
        findings.push(Finding::new(ATTACHED, Grade::Unseen, text));
    }
    if findings.is_empty() {
        findings.push(Finding::new(ATTACHED, Grade::Fine, "each would be attached now too"));
    }
    findings
}

/// A finding for each sentence about a Service. `kept` has the Services, such as `Service shop/web`, each with its sentences.
pub fn by_services<'a>(kept: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Finding> {
    let finding = |(service, why): (&str, &str)| Finding::new(KEPT, Grade::Note, format!("{service}: {why}"));
    let findings: Vec<Finding> = kept.into_iter().map(finding).collect();
    match findings.is_empty() {
        true => vec![Finding::new(KEPT, Grade::Fine, "no Service has what a new one would not get")],
        false => findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_stays_is_named_with_its_node_and_the_reason_and_what_was_not_read_is_counted() {
        let disks = |kept: &[KeptDisk], unread: &[String]| disks(kept, unread, 100, Duration::from_secs(60));
        assert_eq!(disks(&[], &[])[0].grade, Grade::Fine);
        let kept = KeptDisk { disk: "d".to_owned(), node: "n".to_owned(), why: "a Pod names it".to_owned() };
        let found = disks(&[kept], &["e".to_owned(), "f".to_owned()]);
        let text = "disk d is attached to Node n and stays, though its attach would be refused now: a Pod names it";
        assert_eq!((found[0].text.as_str(), found[0].grade), (text, Grade::Note));
        assert!(found[1].grade == Grade::Unseen && found[1].text.starts_with("2 attached disks"), "{found:?}");
        assert!(
            found[1].text.contains("100 at most, and within 60 s in all): e, f"),
            "of Pods or of volumes: {found:?}"
        );
    }

    #[test]
    fn each_sentence_is_a_note_with_its_service() {
        assert_eq!(by_services([]).iter().map(|one| one.grade).collect::<Vec<_>>(), [Grade::Fine]);
        let found = by_services([("Service shop/web", "it stays"), ("Service shop/web", "that too")]);
        let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["Service shop/web: it stays", "Service shop/web: that too"]);
        assert!(found.iter().all(|one| (one.check, one.grade) == (KEPT, Grade::Note)));
    }
}
