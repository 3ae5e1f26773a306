//! Which parameters there are, and those that ask for what is not done.

use lazuli_model::{
    parameter::{Parameter, ParameterError, Parameters},
    spelling::nearest,
};

use super::PARAMETERS;

fn known() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|row| row.name)
}

/// Every key, for tests.
#[cfg(test)]
pub(super) fn all_for_tests() -> impl Iterator<Item = &'static str> {
    known()
}

/// Refuses a parameter that nobody knows, and names the one that was probably meant.
pub(super) fn refuse_unknown(parameters: &Parameters<'_>) -> Result<(), ParameterError> {
    for (folded, parameter) in parameters.iter() {
        if known().any(|known| known.eq_ignore_ascii_case(folded)) {
            continue;
        }
        let meant = nearest(parameter.key, known()).map_or_else(String::new, |name| format!(", did you mean {name}?"));
        let all: Vec<&str> = known().filter(|name| !name.starts_with("csi")).collect();
        return Err(
            parameter.refuse(format!("there is no parameter of this name{meant}; allowed are {}", all.join(", ")))
        );
    }
    Ok(())
}

const NFS: &str = "this version mounts SMB shares only, and no NFS shares; allowed is smb";
const VHD: &str = "a disk in a VHD file on a share is not made by this version; allowed are cifs and smb, which mean an \
                   SMB share, and to leave it out";
const KERBEROS: &str = "a mount with an identity needs Kerberos helpers on the host, which this driver does not install; \
                        allowed is to leave it out, and to mount with a key of the account";
const WORKLOAD: &str = "keys by the identity of a workload are not supported by this version; allowed is to leave it out, \
                        and to mount with a key of the account";
const CONFIDENTIAL: &str = "confidential containers get the account's key on the host's disk, which this driver refuses; \
                            allowed is to leave it out";

/// Why a volume with this parameter cannot be made, or mounted, by this version. StorageClasses and PersistentVolumes
/// say these things in the same words.
pub(crate) fn not_done(folded: &str, parameter: Parameter<'_>) -> Result<(), ParameterError> {
    let value = parameter.value;
    match folded {
        "protocol" if value == "nfs" => Err(parameter.refuse(NFS)),
        "protocol" if value != "smb" => Err(parameter.refuse("allowed is smb")),
        "fstype" => match value {
            "cifs" | "smb" => Ok(()),
            "nfs" => Err(parameter.refuse(NFS)),
            "ext2" | "ext3" | "ext4" | "xfs" => Err(parameter.refuse(VHD)),
            _ => Err(parameter.refuse("allowed are cifs and smb, and to leave it out")),
        },
        "mountwithmanagedidentity" | "mountwithworkloadidentitytoken" | "mountwithoauthtoken" => {
            if parameter.boolean()? { Err(parameter.refuse(KERBEROS)) } else { Ok(()) }
        }
        "clientid" | "tenantid" => Err(parameter.refuse(WORKLOAD)),
        "confidentialcontainerlabel" | "runtimeclasshandler" => Err(parameter.refuse(CONFIDENTIAL)),
        _ => Ok(()),
    }
}

/// Refuses what a StorageClass may not ask for, and warns of what has no effect.
pub(super) fn refuse_what_is_not_done(
    parameters: &Parameters<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ParameterError> {
    let given = parameters.iter().filter(|(_, parameter)| !parameter.value.is_empty());
    for (folded, parameter) in given {
        not_done(folded, parameter)?;
        match folded {
            "diskname" => return Err(parameter.refuse(VHD)),
            "rootsquashtype" => {
                return Err(parameter.refuse("only NFS shares have it; allowed is to leave it out"));
            }
            "usedataplaneapi" => match parameter.value.to_ascii_lowercase().as_str() {
                "false" => {}
                "true" | "oauth" => warnings.push(format!(
                    "parameter {} is {:?}: the share is made through Azure Resource Manager all the same",
                    parameter.key, parameter.value
                )),
                _ => return Err(parameter.refuse("allowed are true, false and oauth")),
            },
            "encryptintransit" if parameter.boolean()? => warnings.push(format!(
                "parameter {} is {:?}: it is of NFS; SMB encrypts what it sends without it",
                parameter.key, parameter.value
            )),
            _ => {}
        }
    }
    Ok(())
}
