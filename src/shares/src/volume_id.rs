//! The volume id of a share: `resourceGroup#account#share#disk#uuid#namespace[#subscription]`.
//!
//! The Go driver wrote it in several forms over the years, and the translation of in-tree volumes writes others; all of
//! them are read here as the Go driver reads them:
//!
//! | form | written by |
//! |---|---|
//! | `group#account#share#` and fewer than six fields | old versions of the driver |
//! | `group#account#share#disk#uuid#namespace` | the driver; `uuid` is the request's name where the class named the share |
//! | the same and `#subscription` | the driver, for a share in another subscription than the cluster's |
//! | `group#account#share#pv#namespace` | the translation of an in-tree volume; the driver does not see the namespace |
//! | `#account#share#pv#namespace` | the same without a resource group; here the driver sees it |
//!
//! A PersistentVolume that a person wrote may have any text as its handle; it then says in its attributes what it is.

use std::fmt;

use lazuli_model::{ArmId, ArmIdError};

/// What separates the fields.
const SEPARATOR: char = '#';

/// The longest handle that is read, in bytes (source: Kubernetes keeps an object below 1.5 MiB, and the CSI
/// specification a field below 128 bytes; ids of the Go driver are longer than that, and below this).
const LONGEST: usize = 2_048;

/// A volume id, in its fields. A field that is absent is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareVolumeId {
    /// The resource group of the account; empty for the cluster's.
    pub resource_group: String,
    /// The account.
    pub account: String,
    /// The share; in handles that people write also with folders behind it (`share/folder`).
    pub share: String,
    /// The VHD file of a disk in a share, or what the translation of an in-tree volume puts there.
    pub disk: String,
    /// The name of the request, where the class named the share.
    pub uuid: String,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The subscription of the account; empty for the cluster's.
    pub subscription: String,
}

/// Why a text is not the volume id of a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareVolumeIdError {
    /// It has fewer than three fields.
    #[error(
        "the volume id {0:?} is not that of a share: expected resourceGroup#account#share and up to four more fields"
    )]
    TooFewFields(String),
    /// It is longer than any that is written.
    #[error("the volume id has {0} bytes; allowed are {LONGEST}")]
    TooLong(usize),
    /// A field climbs out of a folder.
    #[error("the volume id {id:?} is not that of a share: its field {field} holds \"..\"")]
    Traversal {
        /// The whole id.
        id: String,
        /// The field.
        field: &'static str,
    },
    /// A field that is to be written holds the separator.
    #[error("no volume id can be written: the {field} {value:?} holds '#'")]
    Separator {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

/// How much of a text an error shows, in characters.
const SHOWN: usize = 256;

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

impl ShareVolumeId {
    /// Reads an id in any of its forms.
    ///
    /// # Errors
    /// When it is no id of a share: DeleteVolume answers OK then, as the Go driver and csi-sanity do.
    pub fn parse(text: &str) -> Result<Self, ShareVolumeIdError> {
        if text.len() > LONGEST {
            return Err(ShareVolumeIdError::TooLong(text.len()));
        }
        let fields: Vec<&str> = text.split(SEPARATOR).collect();
        let [resource_group, account, share, rest @ ..] = &fields[..] else {
            return Err(ShareVolumeIdError::TooFewFields(shown(text)));
        };
        let field = |index: usize| rest.get(index).copied().unwrap_or_default();
        let (uuid, namespace, subscription) = match resource_group.is_empty() {
            true => ("", field(1), ""),
            false => (field(1), field(2), field(3)),
        };
        for (name, value) in [("disk", field(0)), ("namespace", namespace), ("share", share)] {
            if value.split(['/', '\\']).any(|part| part == "..") {
                return Err(ShareVolumeIdError::Traversal { id: shown(text), field: name });
            }
        }
        Ok(Self {
            resource_group: (*resource_group).to_owned(),
            account: (*account).to_owned(),
            share: (*share).to_owned(),
            disk: field(0).to_owned(),
            uuid: uuid.to_owned(),
            namespace: namespace.to_owned(),
            subscription: subscription.to_owned(),
        })
    }

    /// Writes the id as the Go driver does: six fields, and the subscription where it is not the cluster's.
    ///
    /// # Errors
    /// When a field holds the separator: the id would be read as another.
    pub fn write(&self, cluster_subscription: &str) -> Result<String, ShareVolumeIdError> {
        let fields = [
            ("resource group", &self.resource_group),
            ("account", &self.account),
            ("share", &self.share),
            ("disk", &self.disk),
            ("request name", &self.uuid),
            ("namespace", &self.namespace),
            ("subscription", &self.subscription),
        ];
        if let Some((field, value)) = fields.iter().find(|(_, value)| value.contains(SEPARATOR)) {
            return Err(ShareVolumeIdError::Separator { field, value: (*value).clone() });
        }
        let is_elsewhere =
            !self.subscription.is_empty() && !self.subscription.eq_ignore_ascii_case(cluster_subscription);
        let count = if is_elsewhere { 7 } else { 6 };
        Ok(fields[..count].iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("#"))
    }

    /// The name of the share, without folders behind it.
    pub fn share_name(&self) -> &str {
        self.share.split('/').next().unwrap_or_default()
    }

    /// The folders behind the share's name; empty in every id that a driver wrote.
    pub fn sub_path(&self) -> &str {
        self.share.split_once('/').map_or("", |(_, folders)| folders)
    }

    /// Whether the volume is a disk in a VHD file on the share.
    pub fn is_vhd(&self) -> bool {
        self.disk.ends_with(".vhd")
    }

    /// Whether the class named the share, so that it may be older than the volume.
    pub fn is_named_by_class(&self) -> bool {
        !self.uuid.is_empty()
    }

    /// The account in Azure; what the id leaves out is the cluster's.
    ///
    /// # Errors
    /// When a field cannot be part of an ARM id.
    pub fn account_id(&self, subscription: &str, resource_group: &str) -> Result<ArmId, ArmIdError> {
        let or = |own: &'_ str, cluster: &str| if own.is_empty() { cluster.to_owned() } else { own.to_owned() };
        ArmId::storage_account(
            &or(&self.subscription, subscription),
            &or(&self.resource_group, resource_group),
            &self.account,
        )
    }

    /// The share in Azure.
    ///
    /// # Errors
    /// As [`ShareVolumeId::account_id`].
    pub fn share_id(&self, subscription: &str, resource_group: &str) -> Result<ArmId, ArmIdError> {
        ArmId::file_share(&self.account_id(subscription, resource_group)?, self.share_name())
    }
}

/// For logs: all seven fields.
impl fmt::Display for ShareVolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource_group, account, share, disk, uuid, namespace, subscription } = self;
        write!(f, "{resource_group}#{account}#{share}#{disk}#{uuid}#{namespace}#{subscription}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(text: &str) -> [String; 7] {
        let id = ShareVolumeId::parse(text).unwrap();
        [id.resource_group, id.account, id.share, id.disk, id.uuid, id.namespace, id.subscription]
    }

    #[test]
    fn every_form_is_read_as_the_go_driver_reads_it() {
        for (text, expected) in [
            ("rg#acct#share", ["rg", "acct", "share", "", "", "", ""]),
            ("rg#acct#share#", ["rg", "acct", "share", "", "", "", ""]),
            ("rg#acct#share#d.vhd", ["rg", "acct", "share", "d.vhd", "", "", ""]),
            ("rg#acct#share#d.vhd#1620118846", ["rg", "acct", "share", "d.vhd", "1620118846", "", ""]),
            ("rg#acct#share###ns", ["rg", "acct", "share", "", "", "ns", ""]),
            ("rg#acct#share#d.vhd#uuid#ns#subs", ["rg", "acct", "share", "d.vhd", "uuid", "ns", "subs"]),
            ("rg#acct#share#d.vhd#uuid#ns#subs#more", ["rg", "acct", "share", "d.vhd", "uuid", "ns", "subs"]),
            // An in-tree volume with a resource group: the fifth field is its namespace, and read as the request's name.
            ("rg#acct#share#pv#ns", ["rg", "acct", "share", "pv", "ns", "", ""]),
            // Without one: the fifth field is the namespace, and there is no subscription.
            ("#acct#share#pv#ns", ["", "acct", "share", "pv", "", "ns", ""]),
            ("#acct#share#pv#ns#x#subs", ["", "acct", "share", "pv", "", "ns", ""]),
            ("##", ["", "", "", "", "", "", ""]),
            ("vol_1##", ["vol_1", "", "", "", "", "", ""]),
        ] {
            assert_eq!(fields(text), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn what_is_no_id_of_a_share_is_refused_with_its_text() {
        for text in ["", "rg", "rg#acct", "/subscriptions/s/resourceGroups/g"] {
            assert_eq!(ShareVolumeId::parse(text), Err(ShareVolumeIdError::TooFewFields(text.into())));
        }
        for (text, field) in [
            ("rg#a#s#../../etc/shadow#u#ns", "disk"),
            ("rg#a#s#d.vhd#u#../../evil", "namespace"),
            ("#a#s#d#..", "namespace"),
            ("rg#a#s/../t#", "share"),
            ("rg#a#..\\t#", "share"),
        ] {
            assert_eq!(ShareVolumeId::parse(text), Err(ShareVolumeIdError::Traversal { id: text.into(), field }));
        }
        assert!(ShareVolumeId::parse("rg#a#s..t#d..vhd#u#ns").is_ok());
        assert!(ShareVolumeId::parse(&format!("rg#a#{}", "s".repeat(LONGEST - 5))).is_ok());
        let long = format!("rg#a#{}", "s".repeat(LONGEST));
        assert_eq!(ShareVolumeId::parse(&long), Err(ShareVolumeIdError::TooLong(LONGEST + 5)));
    }

    #[test]
    fn the_subscription_is_written_only_where_it_is_not_the_clusters() {
        let id = ShareVolumeId {
            resource_group: "rg".into(),
            account: "f1".into(),
            share: "pvc-1".into(),
            namespace: "default".into(),
            ..ShareVolumeId::default()
        };
        assert_eq!(id.write("sub").unwrap(), "rg#f1#pvc-1###default");
        let named = ShareVolumeId { uuid: "pvc-2".into(), subscription: "SUB".into(), ..id.clone() };
        assert_eq!(named.write("sub").unwrap(), "rg#f1#pvc-1##pvc-2#default");
        assert_eq!(named.write("other").unwrap(), "rg#f1#pvc-1##pvc-2#default#SUB");
        assert!(named.is_named_by_class() && !id.is_named_by_class());
    }

    #[test]
    fn a_share_with_folders_behind_it_is_the_share() {
        let id = ShareVolumeId::parse("rg#f1#config/ASCP01/certs#").unwrap();
        assert_eq!((id.share_name(), id.sub_path()), ("config", "ASCP01/certs"));
        assert_eq!(
            id.share_id("s", "g").unwrap().as_str(),
            "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/f1/fileServices/default/shares/config"
        );
        let cluster = ShareVolumeId::parse("#f1#s#").unwrap().account_id("s", "g").unwrap();
        assert_eq!((cluster.subscription(), cluster.resource_group()), ("s", "g"));
        assert!(ShareVolumeId::parse("r/g#f1#s#").unwrap().account_id("s", "g").is_err());
        assert!(ShareVolumeId::parse("rg##s#").unwrap().account_id("s", "g").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            group in "[a-zA-Z0-9_.()-]{1,20}", account in "[a-z0-9]{3,24}", share in "[a-z0-9-]{3,63}",
            disk in "[a-z0-9]{0,9}", uuid in "[a-z0-9-]{0,40}", namespace in "[a-z0-9-]{0,20}", elsewhere in any::<bool>(),
        ) {
            let subscription = if elsewhere { "other".to_owned() } else { String::new() };
            let id = ShareVolumeId { resource_group: group, account, share, disk, uuid, namespace, subscription };
            prop_assert_eq!(ShareVolumeId::parse(&id.write("cluster").unwrap()), Ok(id));
        }

        #[test]
        fn a_field_with_the_separator_is_never_written(index in 0usize..7, text in "[a-z]{0,3}#[a-z#]{0,3}") {
            let mut id = ShareVolumeId { resource_group: "rg".into(), ..ShareVolumeId::default() };
            let fields = [
                &mut id.resource_group, &mut id.account, &mut id.share, &mut id.disk, &mut id.uuid, &mut id.namespace,
                &mut id.subscription,
            ];
            *fields.into_iter().nth(index).unwrap() = text;
            let refused = matches!(id.write("cluster"), Err(ShareVolumeIdError::Separator { .. }));
            prop_assert!(refused);
        }

        #[test]
        fn no_text_breaks_the_parser_and_what_it_gives_is_stable(text in "(\\PC|#|/|\\.|\\n|\\x00){0,80}") {
            if let Ok(id) = ShareVolumeId::parse(&text) {
                prop_assert_eq!(id.account.contains('#'), false);
                let _ = (id.account_id("s", "g"), id.share_id("s", "g"), id.sub_path());
                if let Ok(share) = id.share_id("s", "g") {
                    prop_assert!(share.is_type(lazuli_model::file_share::SHARE_TYPE));
                    prop_assert_eq!(share.name(), id.share_name());
                }
                if !id.resource_group.is_empty() {
                    prop_assert_eq!(ShareVolumeId::parse(&id.write("").unwrap()), Ok(id));
                }
            }
        }
    }
}
