//! The catalogue of the compute provider.

use serde_json::json;

use super::Fault;

/// Recorded on Azure Stack Hub (cloud-provider-azure#8919).
pub(crate) fn unknown_member(member: &str, on: &str, path: &str, position: usize, root: &str) -> Fault {
    Fault::new(
        400,
        "BadRequest",
        format!(
            "Could not find member '{member}' on object of type '{on}'. Path '{path}', line 1, position {position}."
        ),
    )
    .at(format!("{root}.{path}"))
}

/// Documented: the deserialiser's words; code and target as for an unknown member.
pub(crate) fn wrong_type(why: &str, path: &str, position: usize, root: &str) -> Fault {
    Fault::new(400, "BadRequest", format!("{why} Path '{path}', line 1, position {position}."))
        .at(format!("{root}.{path}"))
}

/// Documented.
pub(crate) fn missing_parameter(parameter: &str) -> Fault {
    Fault::new(400, "InvalidParameter", format!("Required parameter '{parameter}' is missing (null).")).at(parameter)
}

/// Documented family; the texts that pass through here are marked where they are written.
pub(crate) fn invalid_parameter(target: &str, message: impl Into<String>) -> Fault {
    Fault::new(400, "InvalidParameter", message).at(target)
}

/// Documented (azure-rest-api-specs#9130): the compute provider does not know this `$expand`.
pub(crate) fn unknown_expansion() -> Fault {
    invalid_parameter("$expand", "The request URL is not valid.")
}

/// Documented (lisa#692).
pub(crate) fn out_of_range(target: &str, value: &str, least: &str, most: &str) -> Fault {
    invalid_parameter(
        target,
        format!(
            "The value '{value}' of parameter '{target}' is out of range. Value '{value}' must be between '{least}' and '{most}' inclusive."
        ),
    )
}

/// Documented (public trackers).
pub(crate) fn bad_request(message: impl Into<String>) -> Fault {
    Fault::new(400, "BadRequest", message)
}

/// Documented family.
pub(crate) fn not_allowed(message: impl Into<String>) -> Fault {
    Fault::new(409, "OperationNotAllowed", message)
}

/// Documented family (azure-powershell#7621).
pub(crate) fn property_change(property: &str) -> Fault {
    Fault::new(409, "PropertyChangeNotAllowed", format!("Changing property '{property}' is not allowed.")).at(property)
}

/// Documented.
pub(crate) fn concurrent_request() -> Fault {
    Fault::new(409, "Conflict", "The request failed due to conflict with a concurrent request.")
}

/// Documented: stands in the operation that was pushed aside (cloud-provider-azure PR#1356).
pub(crate) fn preempted() -> Fault {
    Fault::new(409, "OperationPreempted", "Operation execution has been preempted by a more recent operation.")
}

/// Documented (common VM error codes; the link: terraform#28218).
pub(crate) fn vm_deallocated(operation: &str, vm: &str) -> Fault {
    not_allowed(format!(
        "Operation '{operation}' is not allowed on VM '{vm}' since the VM is either deallocated or marked to be deallocated. Please refer to https://aka.ms/vmpowerstates to learn about different VM power states."
    ))
}

/// Documented (common VM error codes).
pub(crate) fn vm_must_run() -> Fault {
    not_allowed("The operation requires the VM to be running (or set to run).")
}

/// Documented (common VM error codes); the names of the operations are unverified.
pub(crate) fn marked_for_deletion(operation: &str, vm: &str) -> Fault {
    not_allowed(format!(
        "Operation '{operation}' is not allowed on VM '{vm}' since the VM is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to complete)."
    ))
}

/// Documented: a real body (azure-powershell#4565); that every exchange of interfaces needs it is unverified.
pub(crate) fn interfaces_need_deallocation(vm: &str) -> Fault {
    Fault::new(
        400,
        "AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported",
        format!(
            "Virtual machine {vm} with a single network interface must be stop-deallocated before it can be updated to have multiple network interfaces and vice-versa."
        ),
    )
}

/// Documented (public trackers).
pub(crate) fn disk_exists(name: &str, group: &str) -> Fault {
    Fault::new(
        409,
        "ConflictingUserInput",
        format!("Disk {name} already exists in resource group {group}. Only CreateOption.Attach is supported."),
    )
}

/// Recorded.
pub(crate) fn etag_mismatch(given: &str, actual: &str) -> Fault {
    Fault::new(
        412,
        "PreconditionFailed",
        format!("Etag provided in if-match header {given} does not match etag {actual} of resource."),
    )
}

/// Unverified text: `If-None-Match: *` on a machine that exists.
pub(crate) fn already_exists(given: &str, actual: &str) -> Fault {
    Fault::new(
        412,
        "PreconditionFailed",
        format!("Etag provided in if-none-match header {given} matches etag {actual} of resource."),
    )
}

/// Documented (azuredisk PR#2883, terraform#7389).
pub(crate) fn too_many_data_disks(most: u8) -> Fault {
    not_allowed(format!("The maximum number of data disks allowed to be attached to a VM of this size is {most}."))
        .at("dataDisks")
}

/// Documented (openshift-azure#83).
pub(crate) fn lun_in_use(lun: i64) -> Fault {
    invalid_parameter("dataDisk.lun", format!("A disk at LUN {lun} already exists."))
}

/// Documented (azuredisk#1378).
pub(crate) fn attached_elsewhere(name: &str, disk: &str, vm: &str, other: &str) -> Fault {
    Fault::new(
        409,
        "ConflictingUserInput",
        format!(
            "Cannot attach the disk {name} to VM {vm} because it is already attached to VM {other}. A disk can be attached to only one VM at a time."
        ),
    )
    .at(disk)
}

/// Documented (public trackers): the late form.
pub(crate) fn owned_by(disk: &str, vm: &str) -> Fault {
    Fault::new(
        409,
        "ConflictingUserInput",
        format!("Disk '{disk}' cannot be attached as the disk is already owned by VM '{vm}'."),
    )
    .at(disk)
}

/// Documented (kubernetes#78657).
pub(crate) fn being_detached(disk: &str, vm: &str) -> Fault {
    Fault::new(
        409,
        "AttachDiskWhileBeingDetached",
        format!(
            "Cannot attach data disk '{disk}' to VM '{vm}' because the disk is currently being detached or the last detach operation failed. Please wait until the disk is completely detached and then try again or delete/detach the disk explicitly again."
        ),
    )
}

/// Documented code (kubernetes#91948), unverified text.
pub(crate) fn detach_unattached(disk: &str, vm: &str) -> Fault {
    Fault::new(
        409,
        "DetachUnattachedDisk",
        format!("Cannot detach data disk '{disk}' from VM '{vm}' because it is not attached."),
    )
}

/// Unverified text; the 404 is documented (the Go drivers drop missing disks on it).
pub(crate) fn disk_not_found(name: &str) -> Fault {
    Fault::new(404, "NotFound", format!("Disk {name} is not found.")).at("dataDisk.managedDisk.id")
}

/// Documented (azuredisk).
pub(crate) fn disk_is_attached(name: &str, vm: &str) -> Fault {
    not_allowed(format!("Disk {name} is attached to VM {vm}."))
}

/// Documented (MicrosoftDocs/azure-docs PR#57951); the code is unverified.
pub(crate) fn cannot_shrink(id: &str) -> Fault {
    not_allowed(format!(
        "The disk/snapshot resource with id {id} cannot be resized down. Reducing disk/snapshot size is not supported in Azure to prevent data loss. If you do need to reduce the size of the disk, please create new snapshot/disks with the appropriate size. More information is available at https://aka.ms/AzureDisksFAQ"
    ))
    .at("disk.diskSizeGB")
}

/// Documented (kubernetes#96706).
pub(crate) fn resize_while_attached(name: &str, vm: &str) -> Fault {
    not_allowed(format!(
        "Cannot resize disk {name} while it is attached to running VM {vm}. Resizing a disk of an Azure Virtual Machine requires the virtual machine to be deallocated. Please stop your VM and retry the operation."
    ))
    .inner("ChangeDiskSizeWhileAttachedNotAllowed")
}

/// Documented text (MicrosoftDocs/azure-docs#89430) and inner code (troubleshoot-disk-resize-failures).
pub(crate) fn resize_beyond_4_tib(name: &str, vm: &str) -> Fault {
    not_allowed(format!(
        "Disks cannot be resized beyond 4095 GiB when attached to a VM. Detach disk {name} from VM {vm} and try again. If caching is enabled for this disk, it will not be supported for disks greater than 4095 GiB."
    ))
    .inner("InvalidResizeForLargeDisks")
}

/// Documented inner code (troubleshoot-disk-resize-failures), unverified text.
pub(crate) fn resize_with_signature(name: &str) -> Fault {
    not_allowed(format!(
        "Cannot resize disk {name} while there is an active shared access signature outstanding for it. Call EndGetAccess before resizing the disk."
    ))
    .inner("ChangeDiskSizeWhileActiveSasNotAllowed")
}

/// Documented (troubleshoot-disk-resize-errors).
pub(crate) fn resize_shared_disk(name: &str) -> Fault {
    not_allowed(format!("Cannot resize shared disk {name} while it is attached to running VM(s)."))
        .inner("LiveResizeSharedDiskNotAllowed")
}

/// Documented (troubleshoot-disk-resize-errors).
pub(crate) fn live_change_unsupported_size(size: &str) -> Fault {
    not_allowed(format!("Change in disk property of VM of size {size} is not supported."))
        .inner("LiveDiskPropertyChangeOfVMOfSizeNotSupported")
}

/// Documented (google/cloud-forensics-utils#488).
pub(crate) fn premium_unsupported(size: &str, sku: &str, disk: &str) -> Fault {
    invalid_parameter(
        "dataDisk.managedDisk.storageAccountType",
        format!(
            "Requested operation cannot be performed because the VM size {size} does not support the storage account type {sku} of disk '{disk}'. Consider updating the VM to a size that supports Premium storage."
        ),
    )
}

/// Documented: a real body (google/cloud-forensics-utils#488).
pub(crate) fn quota(name: &str, location: &str, limit: u64, usage: u64, more: u64) -> Fault {
    not_allowed(format!(
        "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - Deployment Model: Resource Manager, Location: {location}, Current Limit: {limit}, Current Usage: {usage}, Additional Required: {more}, (Minimum) New Limit Required: {}. Submit a request for Quota increase at https://aka.ms/ProdportalCRP/#blade/Microsoft_Azure_Capacity/UsageAndQuota.ReactView by specifying parameters listed in the 'Details' section for deployment to succeed.",
        usage + more
    ))
}

/// Documented.
pub(crate) fn unsupported_zone(zone: &str, kind: &str, name: &str, location: &str) -> Fault {
    Fault::new(
        400,
        "InvalidAvailabilityZone",
        format!(
            "The zone(s) '{zone}' for resource '{kind}/{name}' is not supported. The supported zones for location '{location}' are '1,2,3'"
        ),
    )
}

/// Documented shape: the compute provider's throttling (troubleshooting-throttling-errors).
pub(crate) fn compute_throttled(
    group: &str,
    window: (&str, &str),
    allowed: u64,
    measured: u64,
    retry_after: u32,
) -> Fault {
    let mut fault = Fault::new(
        429,
        "OperationNotAllowed",
        "The server rejected the request because too many requests have been received for this subscription.",
    )
    .inner("TooManyRequestsReceived");
    fault.details = vec![json!({
        "code": "TooManyRequests",
        "target": group,
        "message": json!({
            "operationGroup": group,
            "startTime": window.0,
            "endTime": window.1,
            "allowedRequestCount": allowed,
            "measuredRequestCount": measured,
        }).to_string(),
    })];
    fault.retry_after = Some(retry_after);
    fault
}

/// Documented: the front door's throttling.
pub(crate) fn front_door_throttled(kind: &str, subscription: &str, limit: u64, retry_after: u32) -> Fault {
    let mut fault = Fault::new(
        429,
        "SubscriptionRequestsThrottled",
        format!(
            "Number of {} requests for subscription '{subscription}' exceeded the limit of '{limit}' for time interval '00:00:01'. Please try again after '{retry_after}' seconds.",
            kind.trim_end_matches('s')
        ),
    )
    .by_gateway();
    fault.retry_after = Some(retry_after);
    fault
}

/// Documented.
pub(crate) fn set_in_use(set: &str) -> Fault {
    not_allowed(format!(
        "Availability Set {set} cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any VM."
    ))
}
