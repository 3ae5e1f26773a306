//! From a CreateVolume request to the share it asks for; what a share that exists means for it; how a share grows.

mod change;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Display};

use lazuli_model::{
    AccessMode, ArmId, FileShare, Gib, ShareProtocol, StorageSku,
    fault::Code,
    file_share::CREATED_BY,
    op::{ShareChange, ShareSpec},
    parameter::ParameterError,
};

pub use change::{Expand, check_modification, plan_expand, plan_modify};

use crate::{
    account::AccountRequest,
    limits::{DEFAULT_SIZE, DEFAULT_SKU, performance, recommended, share_size},
    name,
    parameters::{AccountSource, Defaults, Endpoint, ShareClass, ShareNaming},
    volume_id::{ShareVolumeId, ShareVolumeIdError},
};

/// What a request calls the size in errors.
const SIZE: &str = "capacity_range.required_bytes";
/// What a request calls the largest size in errors.
const LIMIT: &str = "capacity_range.limit_bytes";

/// How a volume is handed to the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As a raw block device.
    Block,
    /// As a mounted filesystem. Which filesystem a capability names does not count: kubelet names ext4 where nobody
    /// names one.
    Mount,
}

/// A capability that a volume is asked to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// How it may be used.
    pub mode: AccessMode,
    /// How it is handed over.
    pub access: Access,
}

/// Checks that a share can be what is asked of it: all access modes, and no block device.
///
/// # Errors
/// For a block device, a mode that CSI does not know, and where nothing is asked.
pub fn validate_capabilities(capabilities: &[Capability]) -> Result<(), ParameterError> {
    if capabilities.is_empty() {
        return Err(ParameterError::invalid("volume_capabilities", "", "the request needs at least one"));
    }
    for capability in capabilities {
        if capability.access == Access::Block {
            return Err(ParameterError::invalid(
                "volume_capabilities",
                "block",
                "a share is no block device; allowed is mount",
            ));
        }
        if capability.mode == AccessMode::Unknown {
            let all: Vec<&str> = AccessMode::ALL
                .into_iter()
                .filter(|mode| *mode != AccessMode::Unknown)
                .map(AccessMode::as_str)
                .collect();
            return Err(ParameterError::invalid(
                "volume_capabilities",
                capability.mode.as_str(),
                format!("allowed are {}", all.join(", ")),
            ));
        }
    }
    Ok(())
}

/// A CreateVolume request for an empty share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The name of the request: `pvc-<uid>`.
    pub name: String,
    /// The parameters of the StorageClass.
    pub parameters: BTreeMap<String, String>,
    /// The parameters of the VolumeAttributesClass; they win.
    pub mutable_parameters: BTreeMap<String, String>,
    /// `capacity_range.required_bytes`; 0 when there is none.
    pub required_bytes: i64,
    /// `capacity_range.limit_bytes`; 0 when there is none.
    pub limit_bytes: i64,
    /// The capabilities the volume must have.
    pub capabilities: Vec<Capability>,
}

/// The share that a request asks for. In which account it is made is said by [`choose`](crate::account::choose).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharePlan {
    /// What the class says; its warnings are for a person.
    pub class: ShareClass,
    /// The name of the request.
    pub request: String,
    /// The share's name.
    pub share: String,
    /// The size that is asked for; a share of the account's SKU may have to be larger.
    pub size: Gib,
    /// The largest size that the caller takes, bytes.
    pub most_bytes: Option<u64>,
    cluster_subscription: String,
    cluster_location: String,
    driver_name: String,
}

/// What CreateVolume answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The volume id.
    pub volume_id: String,
    /// The size that the share really has, bytes.
    pub capacity_bytes: u64,
    /// The context of the volume, in the Go driver's words.
    pub volume_context: BTreeMap<String, String>,
}

/// Why a share that exists is not the one that is asked for: `ALREADY_EXISTS`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareMismatch {
    /// It is too small.
    #[error(
        "share {share} exists and has {there}, and the claim asks for {asked}; let the class name another share, or enlarge it"
    )]
    TooSmall {
        /// The share.
        share: String,
        /// Its size.
        there: Gib,
        /// The size that is asked for.
        asked: Gib,
    },
    /// It is too large.
    #[error(
        "share {share} exists and has {there}, and the claim takes at most {most} bytes; let the class name another share"
    )]
    TooLarge {
        /// The share.
        share: String,
        /// Its size.
        there: Gib,
        /// The limit, bytes.
        most: u64,
    },
    /// It cannot be mounted by SMB.
    #[error("share {share} exists and is for NFS, and the claim asks for SMB; let the class name another share")]
    NotSmb {
        /// The share.
        share: String,
    },
}

impl ShareMismatch {
    /// The gRPC code: final for external-provisioner, for a repetition would fail in the same way.
    pub fn code(&self) -> Code {
        Code::AlreadyExists
    }
}

/// What is left to do after the PUT of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterPut {
    /// Nothing: it has this size.
    Done(Gib),
    /// It is smaller than its volume: enlarge it, to this size.
    Enlarge(ShareChange, Gib),
}

/// What Azure says to the PUT of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutAnswer<'a> {
    /// 201: the share is new.
    Created,
    /// 200, and what a read then showed: there was a share. Whether the PUT has changed its size is not documented.
    Existed(&'a FileShare),
}

/// What a request asks for. The same request gives the same plan, whatever the order and the letter case of its
/// parameters' keys.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_create(request: &Request, defaults: &Defaults) -> Result<SharePlan, ParameterError> {
    if request.name.is_empty() {
        return Err(ParameterError::invalid("name", "", "the request needs a name"));
    }
    if request.name.contains('#') {
        return Err(ParameterError::invalid("name", &request.name, "allowed is a name without '#'"));
    }
    validate_capabilities(&request.capabilities)?;
    let class = ShareClass::parse(&request.parameters, &request.mutable_parameters, defaults)?;
    let (size, most_bytes) = asked_size(request)?;
    let share = name::share_name(&request.name, &class.share);
    let plan = SharePlan {
        class,
        request: request.name.clone(),
        share,
        size,
        most_bytes,
        cluster_subscription: defaults.subscription.clone(),
        cluster_location: defaults.location.clone(),
        driver_name: defaults.driver_name.clone(),
    };
    // What can be known before an account is chosen is checked before anything is sent.
    match (plan.class.sku, &plan.class.account) {
        (None, AccountSource::Named { .. }) => {}
        (sku, _) => drop(plan.spec(sku.unwrap_or(DEFAULT_SKU))?),
    }
    Ok(plan)
}

fn asked_size(request: &Request) -> Result<(Gib, Option<u64>), ParameterError> {
    let whole = |name: &str, bytes: i64| {
        u64::try_from(bytes)
            .map_err(|_| ParameterError::invalid(name, bytes, "allowed is a number of bytes, not below 0"))
    };
    let (required, limit) = (whole(SIZE, request.required_bytes)?, whole(LIMIT, request.limit_bytes)?);
    let most = Some(limit).filter(|limit| *limit > 0);
    let size = match required {
        0 => match most.map(|most| most >> 30) {
            Some(gib) if gib < u64::from(DEFAULT_SIZE.get()) => Gib::new(u32::try_from(gib).unwrap_or(0).max(1)),
            _ => DEFAULT_SIZE,
        },
        bytes => Gib::holding(bytes)
            .ok_or_else(|| ParameterError::out_of_range(SIZE, bytes, "no share is as large as this"))?,
    };
    fits_limit(size, most)?;
    Ok((size, most))
}

fn fits_limit(size: Gib, most: Option<u64>) -> Result<(), ParameterError> {
    match most {
        Some(most) if size.bytes() > most => Err(ParameterError::out_of_range(
            LIMIT,
            most,
            format!("the smallest share that holds what is asked for has {} bytes ({size})", size.bytes()),
        )),
        _ => Ok(()),
    }
}

/// The size of a share of a SKU: raised to the smallest that the SKU has.
fn size_of(size: Gib, sku: StorageSku, most: Option<u64>) -> Result<Gib, ParameterError> {
    let range = share_size(sku.billing());
    if size > *range.end() {
        return Err(ParameterError::out_of_range(
            SIZE,
            size.bytes(),
            format!("a share of {sku} has at most {} bytes ({})", range.end().bytes(), range.end()),
        ));
    }
    let size = size.max(*range.start());
    fits_limit(size, most)?;
    Ok(size)
}

impl SharePlan {
    /// What is asked of the account.
    pub fn account_request(&self) -> AccountRequest<'_> {
        AccountRequest { class: &self.class, request: &self.request, location: &self.cluster_location, size: self.size }
    }

    /// Whether the share must be read before its PUT. A generated name is the request's alone, and its share is PUT
    /// unread; a share that the class names may exist, and is then used as it is.
    pub fn is_read_first(&self) -> bool {
        matches!(self.class.share, ShareNaming::Named(_))
    }

    /// What the PUT says, in an account of this SKU.
    ///
    /// # Errors
    /// When a share of the SKU cannot have the size or the performance that is asked for.
    pub fn spec(&self, sku: StorageSku) -> Result<ShareSpec, ParameterError> {
        let size = size_of(self.size, sku, self.most_bytes)?;
        let (iops, bandwidth) = self.performance(sku, size)?;
        Ok(ShareSpec {
            quota: size,
            protocol: None,
            access_tier: self.class.share_access_tier,
            root_squash: None,
            provisioned_iops: iops,
            provisioned_bandwidth: bandwidth,
            metadata: BTreeMap::from([(CREATED_BY.to_owned(), self.driver_name.clone())]),
        })
    }

    fn performance(&self, sku: StorageSku, size: Gib) -> Result<(Option<u32>, Option<u32>), ParameterError> {
        let asked = [("provisionedIOPS", self.class.iops), ("provisionedBandwidth", self.class.bandwidth)];
        let Some(limits) = performance(sku.billing()) else {
            return match asked.into_iter().find_map(|(name, value)| value.map(|value| (name, value))) {
                Some((name, value)) => Err(refused_performance(name, value, sku)),
                None => Ok((None, None)),
            };
        };
        for ((name, value), range) in asked.into_iter().zip([&limits.iops, &limits.bandwidth]) {
            if let Some(value) = value
                && !range.contains(&value)
            {
                let allowed = format!("a share of {sku} has {} to {}", range.start(), range.end());
                return Err(ParameterError::invalid(name, value, allowed));
            }
        }
        let (iops, bandwidth) = recommended(sku.billing(), size).unzip();
        Ok((self.class.iops.or(iops), self.class.bandwidth.or(bandwidth)))
    }

    /// Whether a share that the class names, and that exists, can be the volume. It is not changed.
    ///
    /// # Errors
    /// When it cannot: `ALREADY_EXISTS`.
    pub fn adopt(&self, share: &FileShare) -> Result<Gib, ShareMismatch> {
        let name = || share.name().to_owned();
        if share.protocol == Some(ShareProtocol::Nfs) {
            return Err(ShareMismatch::NotSmb { share: name() });
        }
        if share.quota < self.size {
            return Err(ShareMismatch::TooSmall { share: name(), there: share.quota, asked: self.size });
        }
        match self.most_bytes {
            Some(most) if share.quota.bytes() > most => {
                Err(ShareMismatch::TooLarge { share: name(), there: share.quota, most })
            }
            _ => Ok(share.quota),
        }
    }

    /// Whether the share that an earlier try of the request asked for, with this size, can be the volume. A share of a
    /// generated name is PUT unread, and the PUT may give it another size: what was asked before is known from memory alone.
    ///
    /// # Errors
    /// When it was smaller: `ALREADY_EXISTS`.
    pub fn fits_earlier_try(&self, asked_before: Gib) -> Result<(), ShareMismatch> {
        match asked_before < self.size {
            true => Err(ShareMismatch::TooSmall { share: self.share.clone(), there: asked_before, asked: self.size }),
            false => Ok(()),
        }
    }

    /// What is left to do after the PUT of a share. `persistent_volume` is the size of the PersistentVolume of this
    /// share, if there is one: the share has grown since it was made, and a repeated PUT may have shrunk it.
    ///
    /// # Errors
    /// When there was a share that cannot be the volume: `ALREADY_EXISTS`.
    pub fn after_put(
        &self,
        spec: &ShareSpec,
        answer: PutAnswer<'_>,
        persistent_volume: Option<Gib>,
    ) -> Result<AfterPut, ShareMismatch> {
        let least = persistent_volume.map_or(spec.quota, |size| size.max(spec.quota));
        let there = match answer {
            PutAnswer::Created => spec.quota,
            // Between the read and the PUT another has made the share that the class names.
            PutAnswer::Existed(share) if self.is_read_first() => return self.adopt(share).map(AfterPut::Done),
            PutAnswer::Existed(share) if share.protocol == Some(ShareProtocol::Nfs) => {
                return Err(ShareMismatch::NotSmb { share: share.name().to_owned() });
            }
            PutAnswer::Existed(share) => share.quota,
        };
        if there >= least {
            return Ok(AfterPut::Done(there));
        }
        Ok(AfterPut::Enlarge(ShareChange { quota: Some(least), ..ShareChange::default() }, least))
    }

    /// What CreateVolume answers for a share of this size in this account.
    ///
    /// # Errors
    /// When a part of the volume id holds its separator.
    pub fn answer(&self, account: &ArmId, size: Gib) -> Result<Answer, ShareVolumeIdError> {
        let id = ShareVolumeId {
            resource_group: self.class.resource_group.clone(),
            account: account.name().to_owned(),
            share: self.share.clone(),
            disk: String::new(),
            uuid: if self.is_read_first() { self.request.clone() } else { String::new() },
            namespace: self.class.key.secret_namespace.clone(),
            subscription: self.class.subscription.clone(),
        };
        let mut volume_context = self.class.written.clone();
        set(&mut volume_context, "secretnamespace", &self.class.key.secret_namespace);
        if matches!(self.class.endpoint, Endpoint::Private(_)) {
            let host = format!("{}.privatelink.file.{}", account.name(), self.class.storage_endpoint_suffix);
            set(&mut volume_context, "server", &host);
        }
        Ok(Answer { volume_id: id.write(&self.cluster_subscription)?, capacity_bytes: size.bytes(), volume_context })
    }
}

fn refused_performance(name: &str, value: impl Display, sku: StorageSku) -> ParameterError {
    let allowed = format!("the size alone decides the performance of a share of {sku}; allowed is to leave it out");
    ParameterError::invalid(name, value, allowed)
}

/// Sets a key that the driver owns, in the spelling that is there.
fn set(context: &mut BTreeMap<String, String>, key: &str, value: &str) {
    let spelled = context.keys().find(|k| k.eq_ignore_ascii_case(key)).cloned().unwrap_or_else(|| key.to_owned());
    context.insert(spelled, value.to_owned());
}
