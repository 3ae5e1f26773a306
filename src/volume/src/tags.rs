//! The tags of a disk.

use std::collections::BTreeMap;

use lazuli_model::{
    Disk,
    disk_tags::{COPY_OF, CREATED_BY, FOR_CLAIM, FOR_NAMESPACE, FOR_PV, IMPORTED, MADE_AS, REQUEST, value},
    parameter::Parameters,
    tags::{LONGEST_VALUE, MOST_TAGS, written},
    template::Templates,
};

use super::{ParameterError, name};

/// Switches the write accelerator on when the disk is attached ([`lazuli_model::Disk::write_accelerator`]); a tag
/// because only the VM has a property for it.
pub(super) const WRITE_ACCELERATOR: &str = "writeacceleratorenabled";

/// Tags that a class cannot set: CreateVolume and ListVolumes rely on them.
pub(super) const RESERVED: [&str; 8] =
    [CREATED_BY.0, REQUEST, FOR_PV, FOR_CLAIM, FOR_NAMESPACE, COPY_OF, MADE_AS, IMPORTED];

pub(super) fn insert(tags: &mut BTreeMap<String, String>, key: &str, value: &str) {
    // Azure's tag names are one whatever their case.
    tags.retain(|existing, _| !existing.eq_ignore_ascii_case(key));
    tags.insert(key.to_owned(), value.to_owned());
}

/// For which claim a driver made the disk, by its tags: `NAMESPACE/NAME`, or what else the tags name. `None` for a disk
/// that no driver made for a claim.
pub fn claim_of(tags: &BTreeMap<String, String>) -> Option<String> {
    match (value(tags, FOR_CLAIM), value(tags, FOR_NAMESPACE)) {
        (Some(claim), Some(namespace)) => Some(format!("{namespace}/{claim}")),
        (Some(claim), None) => Some(claim.to_owned()),
        (None, _) => value(tags, FOR_PV).or_else(|| value(tags, REQUEST)).map(str::to_owned),
    }
}

/// Whether the tags of two disks of one name say that they were made for different requests. Tags that are missing say
/// nothing: a person may have removed them.
pub fn made_for_another(before: &Disk, now: &Disk) -> bool {
    [REQUEST, FOR_PV].iter().any(|tag| match (value(&before.tags, tag), value(&now.tags, tag)) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    })
}

/// All tags of the disk. The class cannot set a tag of the driver: the Go driver lets it, and a class could then hand
/// one volume's disk to another. Its tag is left out with a warning rather than refused, for a StorageClass cannot be
/// changed and may have served the Go driver.
pub(super) fn disk_tags(
    parameters: &Parameters<'_>,
    templates: &Templates<'_>,
    request_name: &str,
    write_accelerator: bool,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut tags = BTreeMap::new();
    insert(&mut tags, CREATED_BY.0, CREATED_BY.1);
    insert(&mut tags, REQUEST, &value_of(request_name));
    for (key, value) in
        [(FOR_PV, templates.pv_name), (FOR_CLAIM, templates.pvc_name), (FOR_NAMESPACE, templates.pvc_namespace)]
    {
        if let Some(value) = value {
            insert(&mut tags, key, value);
        }
    }
    add_written(&mut tags, parameters, Some((templates, OF_PROVISIONER)), &RESERVED, warnings)?;
    if write_accelerator {
        insert(&mut tags, WRITE_ACCELERATOR, "true");
    }
    check_number(parameters, &tags)?;
    Ok(tags)
}

/// What fills in the templates of a StorageClass.
const OF_PROVISIONER: &str = "external-provisioner's flag --extra-create-metadata";
/// What fills in those of a VolumeAttributesClass.
pub(super) const OF_RESIZER: &str = "external-resizer's flag --extra-modify-metadata";

/// Adds the tags that a class writes to those that are there. Without templates their values are taken as they are written. With
/// them comes the sidecar's flag that fills them in.
pub(super) fn add_written(
    tags: &mut BTreeMap<String, String>,
    parameters: &Parameters<'_>,
    templates: Option<(&Templates<'_>, &str)>,
    reserved: &[&str],
    warnings: &mut Vec<String>,
) -> Result<(), ParameterError> {
    let Some(parameter) = parameters.get("tags") else { return Ok(()) };
    let delimiter = parameters.get("tagvaluedelimiter").map_or(",", |parameter| parameter.value);
    for (key, value) in written(parameter, delimiter)? {
        if let Some(reserved) = reserved.iter().find(|reserved| reserved.eq_ignore_ascii_case(key)) {
            warnings.push(format!(
                "parameter {} sets the tag {key} to {value:?}, which is left out: the driver sets {reserved} itself",
                parameter.key
            ));
            continue;
        }
        // A value of a template may itself look like one.
        if let Some(unknown) = templates.and_then(|(templates, _)| templates.unknown(value)) {
            warnings.push(format!(
                "parameter {} sets the tag {key} to {value:?}, and {unknown} is no template and stays as it is; the templates \
                 are {}",
                parameter.key,
                Templates::names()
            ));
        }
        let filled = templates.map_or_else(|| value.to_owned(), |(templates, _)| templates.fill(value));
        if templates.is_none()
            && let Some(template) = Templates::first(value)
        {
            warnings.push(format!(
                "parameter {} sets the tag {key} to {value:?}, and {template} stays as it is: tags of a snapshot have no templates",
                parameter.key
            ));
        }
        if let Some((template, flag)) =
            templates.and_then(|(templates, flag)| Some((templates.unfilled(&filled)?, flag)))
        {
            warnings.push(format!("parameter {} holds {template}, which stays as it is without {flag}", parameter.key));
        }
        if filled.chars().count() > LONGEST_VALUE {
            return Err(parameter.refuse(format!("the value of the tag {key} is longer than 256 characters")));
        }
        insert(tags, key, &filled);
    }
    Ok(())
}

/// Refuses the tags that a class writes where Azure takes no more.
pub(super) fn check_number(parameters: &Parameters<'_>, tags: &BTreeMap<String, String>) -> Result<(), ParameterError> {
    match parameters.get("tags") {
        Some(parameter) if tags.len() > MOST_TAGS => Err(parameter.refuse(format!(
            "together with the tags that are there these are {} tags, and allowed are {MOST_TAGS}",
            tags.len()
        ))),
        _ => Ok(()),
    }
}

/// A text as the value of a tag: a digest of one that is longer than a tag's value may be.
pub(super) fn value_of(text: &str) -> String {
    if text.chars().count() > LONGEST_VALUE {
        return name::digest_name(text);
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use lazuli_model::disk_tags::is_made_by_driver;

    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, String>, ParameterError> {
        let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let parameters = Parameters::written(&map)?;
        disk_tags(&parameters, &Templates::of(&parameters), "request-1", false, &mut Vec::new())
    }

    #[test]
    fn the_tag_of_a_driver_counts_by_its_name_in_any_letter_case_and_its_exact_value() {
        let made = |name: &str, value: &str| is_made_by_driver(&[(name.to_owned(), value.to_owned())].into());
        assert!(made("k8s-azure-created-by", "kubernetes-azure-dd"));
        assert!(made("K8s-Azure-Created-By", "kubernetes-azure-dd"));
        assert!(!made("k8s-azure-created-by", "Kubernetes-Azure-DD"));
        assert!(!made("created-by", "kubernetes-azure-dd"));
        assert!(!is_made_by_driver(&BTreeMap::new()));
    }

    #[test]
    fn every_disk_says_who_made_it_and_for_what() {
        let tags = tags(&[
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "db"),
        ])
        .unwrap();
        let expected = [
            ("k8s-azure-created-by", "kubernetes-azure-dd"),
            ("kubernetes.io-created-for-pv-name", "pvc-1"),
            ("kubernetes.io-created-for-pvc-name", "data"),
            ("kubernetes.io-created-for-pvc-namespace", "db"),
            ("lazuli-request", "request-1"),
        ];
        assert_eq!(tags, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn tags_are_split_trimmed_and_filled_in() {
        let given = [
            ("tags", " env = prod ;list=a,b;empty=;eq=a=b;owner=${pvc.metadata.name}"),
            ("tagValueDelimiter", ";"),
            ("csi.storage.k8s.io/pvc/name", "data"),
        ];
        let tags = tags(&given).unwrap();
        for (key, value) in [("env", "prod"), ("list", "a,b"), ("empty", ""), ("eq", "a=b"), ("owner", "data")] {
            assert_eq!(tags[key], value, "{key}");
        }
    }

    #[test]
    fn a_misspelt_template_stays_as_with_the_go_driver_and_is_told() {
        for (value, told) in [
            ("a-${pvc.metadata.nmae}", Some("${pvc.metadata.nmae} is no template")),
            ("${pvc.metadata.name", Some("${pvc.metadata.name is no template")),
            ("${pvc.metadata.name}-${pv.name}", Some("${pv.name} is no template")),
            ("${pvc.metadata.name}", None),
            ("$5{}", None),
        ] {
            let metadata = [("csi.storage.k8s.io/pvc/name", "data"), ("tags", &format!("owner={value}"))];
            let map: BTreeMap<String, String> =
                metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let parameters = Parameters::written(&map).unwrap();
            let mut warnings = Vec::new();
            let templates = Templates::of(&parameters);
            let tags = disk_tags(&parameters, &templates, "request-1", false, &mut warnings).unwrap();
            assert_eq!(tags["owner"], templates.fill(value));
            match told {
                Some(told) => assert!(
                    warnings.len() == 1 && warnings[0].contains(told) && warnings[0].contains("${pv.metadata.name}"),
                    "{warnings:?}"
                ),
                None => assert!(warnings.is_empty(), "{warnings:?}"),
            }
        }
    }

    #[test]
    fn two_spellings_of_a_tag_are_one_tag() {
        let tags = tags(&[("tags", "a=1,A=2")]).unwrap();
        assert_eq!((tags.get("a"), tags.get("A").map(String::as_str)), (None, Some("2")));
    }

    #[test]
    fn a_class_sets_no_tag_of_the_driver() {
        let without_class = tags(&[]).unwrap();
        for name in RESERVED {
            for key in [name.to_owned(), name.to_ascii_uppercase()] {
                let map = BTreeMap::from([("tags".to_owned(), format!("{key}=mine,env=prod"))]);
                let parameters = Parameters::written(&map).unwrap();
                let mut warnings = Vec::new();
                let mut tags =
                    disk_tags(&parameters, &Templates::of(&parameters), "request-1", false, &mut warnings).unwrap();
                assert_eq!(tags.remove("env").as_deref(), Some("prod"));
                assert_eq!(tags, without_class, "{key}");
                assert!(
                    warnings.len() == 1 && warnings[0].contains(&key) && warnings[0].contains("mine"),
                    "{warnings:?}"
                );
            }
        }
    }

    #[test]
    fn a_request_name_that_no_tag_can_hold_is_a_digest_and_the_same_one_each_time() {
        let long = "n".repeat(LONGEST_VALUE + 1);
        assert_eq!(value_of(&long[1..]), long[1..]);
        let digest = value_of(&long);
        assert!(digest.len() <= LONGEST_VALUE && digest == value_of(&long), "{digest}");
        assert_ne!(digest, value_of(&format!("{long}n")));
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for value in ["a", "a=1,", "=1", " =1", "a/b=1", "a?=1", "a\\b=1", "a<=1"] {
            let error = tags(&[("tags", value)]).unwrap_err();
            assert_eq!((error.parameter.as_str(), error.value.as_str()), ("tags", value));
        }
        assert!(tags(&[("tags", &format!("a={}", "x".repeat(257)))]).is_err());
        assert!(tags(&[("tags", &format!("{}=x", "a".repeat(513)))]).is_err());
        let many: Vec<String> = (0..50).map(|n| format!("k{n}=v")).collect();
        assert!(tags(&[("tags", &many.join(","))]).unwrap_err().to_string().contains("52 tags"));
    }

    #[test]
    fn an_empty_tags_parameter_is_none_at_all() {
        assert_eq!(tags(&[("tags", ""), ("tagValueDelimiter", "")]).unwrap(), tags(&[]).unwrap());
    }
}
