//! The name of a disk.
//!
//! Azure's rule (source: the disks API): 1 to 80 characters, letters, digits, `_`, `.` and `-`, a letter or digit
//! first, a letter, digit or `_` last. The Go driver replaces an invalid name by one with a fresh random id on every
//! try, and so makes a disk per try. Here the same request always gives the same name.

use lazuli_model::{digest::uuid_like, parameter::Parameter, template::Templates};

use super::ParameterError;

/// The longest name.
const LENGTH: usize = 80;

const RULE: &str = "allowed are 1 to 80 letters, digits, '_', '.' and '-', starting with a letter or digit and ending \
                    with a letter, digit or '_'";

fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends_well = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.len() <= LENGTH
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(ends_well)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte))
}

/// The first 80 characters as the Go driver cuts them, without what may not stand last.
fn cut(name: &str) -> &str {
    match name.char_indices().find(|(at, c)| at + c.len_utf8() > LENGTH) {
        Some((end, _)) => name[..end].trim_end_matches(['-', '.']),
        None => name,
    }
}

/// The name of the disk: the parameter `diskName` with its templates filled in, else the name of the CSI request.
///
/// A request's name that Azure refuses (CSI allows any text), and one that would have to be cut (two of them may differ
/// behind the cut, and two volumes on one disk would lose what one of them holds), becomes `pvc-disk-dynamic-` and a digest of it, in the
/// form of the names that the Go driver invents; a `diskName` that Azure refuses is the user's mistake.
pub(super) fn disk_name(
    request_name: &str,
    parameter: Option<Parameter<'_>>,
    templates: &Templates<'_>,
) -> Result<String, ParameterError> {
    if let Some(parameter) = parameter {
        let filled = templates.fill(parameter.value);
        if let Some(template) = templates.unfilled(&filled) {
            return Err(parameter.refuse(format!(
                "{template} is unknown; it needs external-provisioner's flag --extra-create-metadata"
            )));
        }
        let name = cut(&filled);
        return if is_valid(name) { Ok(name.to_owned()) } else { Err(parameter.refuse(RULE)) };
    }
    Ok(if is_valid(request_name) { request_name.to_owned() } else { digest_name(request_name) })
}

/// A name for a text that cannot be one: the same for the same text.
pub(super) fn digest_name(name: &str) -> String {
    format!("pvc-disk-dynamic-{}", uuid_like(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(request_name: &str, disk_name_parameter: Option<&str>) -> Result<String, ParameterError> {
        let templates = Templates { pv_name: Some("pv-1"), pvc_name: Some("data-db-0"), pvc_namespace: None };
        let parameter = disk_name_parameter.map(|value| Parameter { key: "diskName", value });
        disk_name(request_name, parameter, &templates)
    }

    #[test]
    fn a_request_names_its_disk() {
        assert_eq!(named("pvc-0b1f", None).unwrap(), "pvc-0b1f");
        assert_eq!(named("pvc-0b1f", Some("disk_of-${pvc.metadata.name}")).unwrap(), "disk_of-data-db-0");
        assert_eq!(named("pvc-0b1f", Some("${pv.metadata.name}.x")).unwrap(), "pv-1.x");
    }

    #[test]
    fn a_template_without_metadata_is_refused_and_says_which_flag_is_missing() {
        let error = named("n", Some("d-${pvc.metadata.namespace}")).unwrap_err();
        assert!(error.to_string().contains("${pvc.metadata.namespace} is unknown"), "{error}");
        assert!(error.to_string().contains("--extra-create-metadata"), "{error}");
    }

    #[test]
    fn a_long_disk_name_is_cut_at_80_as_the_go_driver_does() {
        assert_eq!(named("n", Some(&"b".repeat(81))).unwrap(), "b".repeat(80));
        let dash_at_the_cut = format!("{}-{}", "a".repeat(79), "z".repeat(30));
        assert_eq!(named("n", Some(&dash_at_the_cut)).unwrap(), "a".repeat(79));
    }

    #[test]
    fn two_long_request_names_that_differ_at_their_ends_are_two_disks() {
        let long = "a".repeat(80);
        assert_eq!(named(&long, None).unwrap(), long);
        let [one, other] = ["1", "2"].map(|end| named(&format!("{long}{end}"), None).unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("pvc-disk-dynamic-") && one != long, "{one}");
    }

    #[test]
    fn an_invalid_request_name_gives_the_same_disk_on_every_try() {
        let first = named("päth/with spaces", None).unwrap();
        assert_eq!(named("päth/with spaces", None).unwrap(), first);
        assert_ne!(named("päth/with space", None).unwrap(), first);
        assert!(first.starts_with("pvc-disk-dynamic-"), "{first}");
    }

    #[test]
    fn an_invalid_disk_name_parameter_is_refused_instead_of_replaced_at_random() {
        for name in ["-a", ".a", "_a", "a-", "a.", "a b", "a/b", "ä", "a${x}"] {
            let error = named("n", Some(name)).unwrap_err();
            assert_eq!((error.parameter.as_str(), error.value.as_str()), ("diskName", name));
        }
        assert_eq!(named("n", Some("a_")).unwrap(), "a_");
    }

    proptest! {
        #[test]
        fn every_request_gives_a_valid_name(name in "\\PC{1,130}") {
            let disk = named(&name, None).unwrap();
            prop_assert!(is_valid(&disk), "{}", disk);
            prop_assert_eq!(named(&name, None).unwrap(), disk);
        }
    }
}
