//! The parameters of a StorageClass of file shares, as a typed value.
//!
//! Every value is checked before anything is sent, and what is refused is named with its key, its value and what is
//! allowed. Where the Go driver takes a value and lets Azure refuse it, ignores it or picks at random, this differs;
//! parameters of what this version does not do (NFS, VHD files, mounts with an identity) are refused with the reason.

mod known;
mod network;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use lazuli_model::{
    AccountAccessTier, AccountNetworkAccess, AllowedResourceGroups, Billing, Gib, ShareAccessTier, StorageSku,
    kube_name::{is_label_value, is_subdomain},
    parameter::{Parameter, ParameterError, Parameters},
    tags::{self, LONGEST_VALUE, MOST_TAGS},
    template::Templates,
};

pub(crate) use known::not_done;
pub use network::{Endpoint, PrivateNetwork};
pub use table::PARAMETERS;

use crate::{
    limits::{ACCOUNT_NAME_LENGTH, DEFAULT_SKU, LEAST_ACCOUNT_QUOTA, performance},
    name,
};

/// The tag that says that a driver made an account: the Go driver, the in-tree plugin or this one.
pub const CREATED_BY: (&str, &str) = ("k8s-azure-created-by", "azure");

/// The tag with which the Go driver, or a person, keeps an account from being matched.
pub const SKIP_MATCHING: &str = "skip-matching";

/// The namespace of a Secret where nothing names one (source: the Go driver).
pub const DEFAULT_NAMESPACE: &str = "default";

/// The parameters that a VolumeAttributesClass may have, as the documentation spells them.
const MUTABLE: [&str; 2] = ["provisionedIOPS", "provisionedBandwidth"];

/// What the cloud configuration says for every share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defaults {
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group for accounts whose class names none.
    pub resource_group: String,
    /// The region of the cluster.
    pub location: String,
    /// The domain of Azure's storage services: `core.windows.net`.
    pub storage_endpoint_suffix: String,
    /// The resource group of the cluster's network; empty for `resource_group`.
    pub vnet_resource_group: String,
    /// The cluster's network.
    pub vnet_name: String,
    /// The subnet of the cluster's nodes.
    pub subnet_name: String,
    /// The name of the driver: `file.csi.azure.com`.
    pub driver_name: String,
    /// The resource groups that a class may name.
    pub allowed_resource_groups: AllowedResourceGroups,
}

/// In which account the share of a claim is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountSource {
    /// In the one of this name.
    Named {
        /// The account.
        name: String,
        /// Whether it is made where it does not exist.
        create: bool,
    },
    /// In one that is made for the claim alone.
    Own,
    /// In one that fits; one is made where none does.
    Matching {
        /// Which one, where several fit.
        pick: Pick,
        /// Whether it must have the tags of the class.
        by_tags: bool,
    },
}

/// Which account is taken, where several fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The first of Azure's list.
    First,
    /// Any of them.
    Random,
}

/// What a share is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareNaming {
    /// After the request.
    Generated {
        /// What stands before the name of the request: `prefix-pvc-…`.
        prefix: Option<String>,
    },
    /// As the class says. The share may exist, and may be that of other volumes.
    Named(String),
}

/// What becomes of the key of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStorage {
    /// Whether CreateVolume writes it into a Secret.
    pub store: bool,
    /// Whether it is the key that was made last, not the first one.
    pub latest: bool,
    /// The Secret; `None` for the name that the account gives.
    pub secret_name: Option<String>,
    /// The namespace of the Secret.
    pub secret_namespace: String,
}

/// A StorageClass, with what a VolumeAttributesClass sets over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareClass {
    /// `skuName`; an account of any SKU fits where the class says none.
    pub sku: Option<StorageSku>,
    /// The subscription of the account.
    pub subscription: String,
    /// The resource group of the account.
    pub resource_group: String,
    /// `location`; an account of any region fits where the class says none.
    pub location: Option<String>,
    /// The account.
    pub account: AccountSource,
    /// `accountQuota`: an account whose shares have more than this together gets no further share.
    pub account_quota: Option<Gib>,
    /// `accountAccessTier`
    pub account_access_tier: Option<AccountAccessTier>,
    /// `enableLargeFileShares`
    pub large_file_shares: Option<bool>,
    /// `disableDeleteRetentionPolicy`
    pub disable_delete_retention: Option<bool>,
    /// `allowBlobPublicAccess`, which is false where the class does not say.
    pub allow_blob_public_access: bool,
    /// `allowSharedKeyAccess`: true, or not said.
    pub allow_shared_key_access: Option<bool>,
    /// `allowCrossTenantReplication`
    pub allow_cross_tenant_replication: Option<bool>,
    /// `requireInfraEncryption`
    pub require_infrastructure_encryption: Option<bool>,
    /// `enableMultichannel`
    pub multichannel: Option<bool>,
    /// `publicNetworkAccess`
    pub public_network_access: Option<AccountNetworkAccess>,
    /// How the account is reached.
    pub endpoint: Endpoint,
    /// The tags of an account that is made.
    pub tags: BTreeMap<String, String>,
    /// The name of the share.
    pub share: ShareNaming,
    /// `shareAccessTier`
    pub share_access_tier: Option<ShareAccessTier>,
    /// `provisionedIOPS`, operations per second.
    pub iops: Option<u32>,
    /// `provisionedBandwidth`, MiB per second.
    pub bandwidth: Option<u32>,
    /// The key of the account.
    pub key: KeyStorage,
    /// `storageEndpointSuffix`, or the cloud's.
    pub storage_endpoint_suffix: String,
    /// The parameters as they were written: the context of the volume.
    pub written: BTreeMap<String, String>,
    /// What a person should know of, a sentence each.
    pub warnings: Vec<String>,
}

impl ShareClass {
    /// Reads the parameters of a StorageClass, and those of a VolumeAttributesClass over them. The order and the letter
    /// case of keys do not count.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn parse(
        parameters: &BTreeMap<String, String>,
        mutable: &BTreeMap<String, String>,
        defaults: &Defaults,
    ) -> Result<Self, ParameterError> {
        let over = Parameters::written(mutable)?;
        check_mutable(&over)?;
        let parameters = Parameters::written(parameters)?.overridden_by(over, &[]);
        let mut warnings = Vec::new();
        known::refuse_unknown(&parameters)?;
        known::refuse_what_is_not_done(&parameters, &mut warnings)?;
        let reader = Reader { parameters: &parameters, templates: Templates::of(&parameters), defaults };
        reader.warn_of_switches(&mut warnings);
        let sku = reader.sku()?;
        let (subscription, resource_group) = reader.scope()?;
        let account = reader.account()?;
        let written = parameters.iter().map(|(_, one)| (one.key.to_owned(), one.value.to_owned())).collect();
        reader.check_for_node()?;
        let suffix = reader.text("storageendpointsuffix");
        let storage_endpoint_suffix = suffix.unwrap_or_else(|| defaults.storage_endpoint_suffix.clone());
        let endpoint = network::endpoint(&parameters, defaults, &storage_endpoint_suffix, &mut warnings)?;
        Ok(Self {
            sku,
            subscription,
            resource_group,
            location: reader.text("location"),
            account_quota: reader.account_quota()?,
            account_access_tier: reader.named("accountaccesstier")?,
            large_file_shares: reader.boolean("enablelargefileshares")?,
            disable_delete_retention: reader.boolean("disabledeleteretentionpolicy")?,
            allow_blob_public_access: reader.boolean("allowblobpublicaccess")?.unwrap_or(false),
            allow_shared_key_access: reader.shared_key_access()?,
            allow_cross_tenant_replication: reader.boolean("allowcrosstenantreplication")?,
            require_infrastructure_encryption: reader.boolean("requireinfraencryption")?,
            multichannel: reader.multichannel(sku, &account)?,
            public_network_access: reader.named("publicnetworkaccess")?,
            endpoint,
            tags: reader.tags(&mut warnings)?,
            share: reader.share(&mut warnings)?,
            share_access_tier: reader.share_access_tier(sku, &account)?,
            iops: reader.performance("provisionediops", sku)?,
            bandwidth: reader.performance("provisionedbandwidth", sku)?,
            key: reader.key()?,
            storage_endpoint_suffix,
            account,
            written,
            warnings,
        })
    }
}

/// Refuses what a VolumeAttributesClass cannot change.
pub(crate) fn check_mutable(parameters: &Parameters<'_>) -> Result<(), ParameterError> {
    for (folded, parameter) in parameters.iter() {
        if !MUTABLE.iter().any(|known| known.eq_ignore_ascii_case(folded)) {
            return Err(parameter.refuse(format!(
                "a VolumeAttributesClass cannot change it for a share; allowed are {}",
                MUTABLE.join(", ")
            )));
        }
    }
    Ok(())
}

/// A number of operations or MiB per second, within what any share can have, and within what the SKU's can where it is
/// known.
pub(crate) fn provisioned(parameter: Parameter<'_>, sku: Option<StorageSku>) -> Result<u32, ParameterError> {
    let is_iops = parameter.key.eq_ignore_ascii_case(MUTABLE[0]);
    let billing = sku.map_or(Billing::ProvisionedV2Ssd, StorageSku::billing);
    let Some(limits) = performance(billing) else {
        let sku = sku.map_or("", StorageSku::as_str);
        return Err(parameter.refuse(format!(
            "the size alone decides the performance of a share of {sku}; allowed with StandardV2_* and PremiumV2_*"
        )));
    };
    let (range, unit) =
        if is_iops { (limits.iops, "operations per second") } else { (limits.bandwidth, "MiB per second") };
    // Without a SKU the smallest share of any v2 SKU is the lower bound.
    let least = match (sku, performance(Billing::ProvisionedV2Hdd)) {
        (None, Some(hdd)) => *if is_iops { hdd.iops } else { hdd.bandwidth }.start(),
        _ => *range.start(),
    };
    let allowed = format!("allowed are whole numbers from {least} to {}, {unit}", range.end());
    let number: u32 = parameter.number(&allowed)?;
    if (least..=*range.end()).contains(&number) { Ok(number) } else { Err(parameter.refuse(allowed)) }
}

/// Reads one parameter after the other.
struct Reader<'a, 'b> {
    parameters: &'b Parameters<'a>,
    templates: Templates<'a>,
    defaults: &'b Defaults,
}

impl<'a> Reader<'a, '_> {
    fn get(&self, folded: &str) -> Option<Parameter<'a>> {
        self.parameters.get(folded)
    }

    fn text(&self, folded: &str) -> Option<String> {
        self.get(folded).map(|parameter| parameter.value.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Switches that the Go driver compares with one word: any other value is the default, so a slip is not refused.
    fn warn_of_switches(&self, warnings: &mut Vec<String>) {
        for (folded, default) in [("createaccount", false), ("matchtags", false), ("storeaccountkey", true)] {
            if let Some(one) = self.get(folded)
                && !["true", "false"].iter().any(|known| known.eq_ignore_ascii_case(one.value))
            {
                let (key, value) = (one.key, one.value);
                warnings
                    .push(format!("parameter {key} is {value:?} and counts as {default}; expected is true or false"));
            }
        }
    }

    fn boolean(&self, folded: &str) -> Result<Option<bool>, ParameterError> {
        self.get(folded).map(|parameter| parameter.boolean()).transpose()
    }

    fn is_true(&self, folded: &str) -> bool {
        self.get(folded).is_some_and(|parameter| parameter.is_true())
    }

    fn named<T: std::str::FromStr<Err = lazuli_model::UnknownName>>(
        &self,
        folded: &str,
    ) -> Result<Option<T>, ParameterError> {
        self.get(folded).map(|parameter| parameter.name()).transpose()
    }

    /// A parameter that has two names.
    fn alias(&self, folded: &str, alias: &str) -> Result<Option<Parameter<'a>>, ParameterError> {
        match (self.get(folded), self.get(alias)) {
            (Some(one), Some(other)) if one.value != other.value => Err(other.refuse(format!(
                "{} names the same thing and is {:?}; allowed is one of the two, or the same value for both",
                one.key, one.value
            ))),
            (one, other) => Ok(one.or(other)),
        }
    }

    /// The value with its templates filled in.
    fn filled(&self, parameter: Parameter<'_>) -> Result<String, ParameterError> {
        let filled = self.templates.fill(parameter.value);
        match self.templates.unfilled(&filled) {
            Some(template) => Err(parameter.refuse(format!(
                "{template} is unknown; it needs external-provisioner's flag --extra-create-metadata"
            ))),
            None => Ok(filled),
        }
    }

    fn sku(&self) -> Result<Option<StorageSku>, ParameterError> {
        self.alias("skuname", "storageaccounttype")?.map(|parameter| parameter.name()).transpose()
    }

    fn scope(&self) -> Result<(String, String), ParameterError> {
        let part = |folded: &str| match self.get(folded) {
            Some(parameter) if parameter.value.contains(['/', '#', '?', ' ']) => {
                Err(parameter.refuse("allowed is a name, without '/', '#', '?' and spaces"))
            }
            parameter => Ok(parameter),
        };
        let (subscription, resource_group) = (part("subscriptionid")?, part("resourcegroup")?);
        if let Some(subscription) = subscription
            && !subscription.value.eq_ignore_ascii_case(&self.defaults.subscription)
            && resource_group.is_none()
        {
            return Err(subscription.refuse("it is not the cluster's, so resourceGroup must be given too"));
        }
        let or = |parameter: Option<Parameter<'_>>, default: &str| {
            parameter.map_or_else(|| default.to_owned(), |parameter| parameter.value.to_owned())
        };
        let scope = (or(subscription, &self.defaults.subscription), or(resource_group, &self.defaults.resource_group));
        let cluster = (&*self.defaults.subscription, &*self.defaults.resource_group);
        // Without either parameter it is the cluster's own group, which is always allowed.
        if let Some(parameter) = resource_group.or(subscription)
            && let Err(allowed) = self.defaults.allowed_resource_groups.check((&scope.0, &scope.1), cluster)
        {
            return Err(parameter.refuse(allowed));
        }
        Ok(scope)
    }

    fn account(&self) -> Result<AccountSource, ParameterError> {
        let (create, by_tags) = (self.is_true("createaccount"), self.is_true("matchtags"));
        let random = self.boolean("selectrandommatchingaccount")?.unwrap_or(false);
        let Some(parameter) = self.get("storageaccount") else {
            let pick = if random { Pick::Random } else { Pick::First };
            return Ok(if create { AccountSource::Own } else { AccountSource::Matching { pick, by_tags } });
        };
        if by_tags {
            return Err(parameter.refuse("matchTags chooses among accounts; allowed is one of the two"));
        }
        let name = parameter.value;
        if !ACCOUNT_NAME_LENGTH.contains(&name.len())
            || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            return Err(parameter.refuse("allowed are 3 to 24 lower-case letters and digits"));
        }
        Ok(AccountSource::Named { name: name.to_owned(), create })
    }

    fn account_quota(&self) -> Result<Option<Gib>, ParameterError> {
        let allowed = format!("allowed are whole numbers from {}, GiB", LEAST_ACCOUNT_QUOTA.get());
        let Some(parameter) = self.get("accountquota") else { return Ok(None) };
        let quota: i32 = parameter.number(&allowed)?;
        match u32::try_from(quota).map(Gib::new) {
            Ok(quota) if quota >= LEAST_ACCOUNT_QUOTA => Ok(Some(quota)),
            _ => Err(parameter.refuse(allowed)),
        }
    }

    fn shared_key_access(&self) -> Result<Option<bool>, ParameterError> {
        match (self.boolean("allowsharedkeyaccess")?, self.get("allowsharedkeyaccess")) {
            (Some(false), Some(parameter)) => Err(parameter.refuse(
                "a share is mounted with a key of its account, and mounts with an identity are not done; allowed is true",
            )),
            (value, _) => Ok(value),
        }
    }

    fn multichannel(&self, sku: Option<StorageSku>, account: &AccountSource) -> Result<Option<bool>, ParameterError> {
        let is_premium = match sku {
            Some(sku) => matches!(sku.billing(), Billing::ProvisionedV1 | Billing::ProvisionedV2Ssd),
            None => matches!(account, AccountSource::Named { create: false, .. }),
        };
        match (self.boolean("enablemultichannel")?, self.get("enablemultichannel")) {
            (Some(true), Some(parameter)) if !is_premium => Err(parameter
                .refuse("SMB Multichannel needs an account on SSD; allowed with skuName Premium_* and PremiumV2_*")),
            (value, _) => Ok(value),
        }
    }

    fn share_access_tier(
        &self,
        sku: Option<StorageSku>,
        account: &AccountSource,
    ) -> Result<Option<ShareAccessTier>, ParameterError> {
        let Some(parameter) = self.alias("shareaccesstier", "accesstier")? else { return Ok(None) };
        let tier: ShareAccessTier = parameter.name()?;
        let is_premium = tier == ShareAccessTier::Premium;
        // An account that the class names may be of any SKU; all others are made, or match, as the default says.
        let is_named = matches!(account, AccountSource::Named { .. });
        match sku.or((!is_named).then_some(DEFAULT_SKU)).map(|sku| (sku, sku.billing())) {
            Some((sku, Billing::PayAsYouGo)) if is_premium => Err(parameter
                .refuse(format!("a share of {sku} cannot have it; allowed are TransactionOptimized, Hot, Cool"))),
            Some((sku, Billing::ProvisionedV1)) if !is_premium => {
                Err(parameter.refuse(format!("a share of {sku} cannot have it; allowed is Premium")))
            }
            _ => Ok(Some(tier)),
        }
    }

    fn performance(&self, folded: &str, sku: Option<StorageSku>) -> Result<Option<u32>, ParameterError> {
        self.get(folded).map(|parameter| provisioned(parameter, sku)).transpose()
    }

    fn key(&self) -> Result<KeyStorage, ParameterError> {
        let secret_name = match self.get("secretname") {
            Some(parameter) => {
                let name = self.filled(parameter)?;
                if !is_subdomain(&name) {
                    return Err(parameter.refuse("allowed is the name of a Secret"));
                }
                Some(name)
            }
            None => None,
        };
        let secret_namespace = match self.get("secretnamespace") {
            Some(parameter) => {
                let namespace = self.filled(parameter)?;
                if !is_subdomain(&namespace) || !is_label_value(&namespace) || namespace.contains('.') {
                    return Err(parameter.refuse("allowed is the name of a namespace"));
                }
                namespace
            }
            None => self.templates.pvc_namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned(),
        };
        let store = !self.get("storeaccountkey").is_some_and(|one| one.value.eq_ignore_ascii_case("false"));
        let latest = self.boolean("getlatestaccountkey")?.unwrap_or(false);
        Ok(KeyStorage { store, latest, secret_name, secret_namespace })
    }

    fn tags(&self, warnings: &mut Vec<String>) -> Result<BTreeMap<String, String>, ParameterError> {
        let mut tags = BTreeMap::new();
        if let Some(parameter) = self.get("tags") {
            let delimiter = self.get("tagvaluedelimiter").map_or(",", |parameter| parameter.value);
            for (key, value) in tags::written(parameter, delimiter)? {
                if [CREATED_BY.0, SKIP_MATCHING].iter().any(|reserved| reserved.eq_ignore_ascii_case(key)) {
                    warnings.push(format!(
                        "parameter {} sets the tag {key} to {value:?}, which is left out: the driver sets and reads it itself",
                        parameter.key
                    ));
                    continue;
                }
                let filled = self.filled(Parameter { key: parameter.key, value })?;
                if filled.chars().count() > LONGEST_VALUE {
                    return Err(parameter.refuse(format!("the value of the tag {key} is longer than 256 characters")));
                }
                tags.retain(|existing: &String, _| !existing.eq_ignore_ascii_case(key));
                tags.insert(key.to_owned(), filled);
            }
            if tags.len() >= MOST_TAGS {
                return Err(parameter.refuse(format!(
                    "together with the driver's own tag these are {} tags, and allowed are {MOST_TAGS}",
                    tags.len() + 1
                )));
            }
        }
        tags.insert(CREATED_BY.0.to_owned(), CREATED_BY.1.to_owned());
        Ok(tags)
    }

    fn share(&self, warnings: &mut Vec<String>) -> Result<ShareNaming, ParameterError> {
        if let Some(parameter) = self.get("sharename") {
            let filled = self.filled(parameter)?;
            let name = name::named(&filled).ok_or_else(|| parameter.refuse(name::RULE))?;
            if name != filled {
                warnings.push(format!("parameter {} is {filled:?}: the share is called {name}", parameter.key));
            }
            return Ok(ShareNaming::Named(name));
        }
        let prefix = match self.get("sharenameprefix") {
            Some(parameter) if !name::is_prefix(parameter.value) => return Err(parameter.refuse(name::PREFIX_RULE)),
            parameter => parameter.map(|parameter| parameter.value.to_owned()),
        };
        Ok(ShareNaming::Generated { prefix })
    }

    /// Checks what only nodes use, so that no volume is made that no node can mount.
    fn check_for_node(&self) -> Result<(), ParameterError> {
        self.boolean("createfolderifnotexist")?;
        self.boolean("encryptintransit")?;
        if let Some(parameter) = self.get("foldername") {
            name::check_folder(&self.filled(parameter)?).map_err(|why| parameter.refuse(why))?;
        }
        if let Some(parameter) = self.get("server") {
            name::check_host(parameter.value).map_err(|why| parameter.refuse(why))?;
        }
        if let Some(parameter) = self.get("storageendpointsuffix") {
            name::check_host(parameter.value.trim()).map_err(|why| parameter.refuse(why))?;
        }
        if let Some(parameter) = self.get("mountpermissions")
            && (u32::from_str_radix(parameter.value, 8).is_err() || parameter.value.starts_with('+'))
        {
            return Err(parameter.refuse("allowed is an octal number"));
        }
        if let Some(parameter) = self.get("fsgroupchangepolicy")
            && !["None", "Always", "OnRootMismatch"].contains(&parameter.value)
        {
            return Err(parameter.refuse("allowed are None, Always, OnRootMismatch"));
        }
        Ok(())
    }
}
