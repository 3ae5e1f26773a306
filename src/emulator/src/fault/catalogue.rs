//! The catalogue of errors: one table.
//!
//! A row is a function: its placeholders, status, code, who says it, the evidence and where it was found, the text;
//! then the target, the inner code or the one detail, where there is one. Evidence: *R*, recorded from live traffic;
//! *D*, documented by Microsoft or a real body in a public tracker; *U*, unverified, a text of our own for a refusal
//! that is known to exist. Nothing here decides whether to refuse.

use std::fmt::Display;

use serde_json::json;

use super::{Fault, Speaker};

macro_rules! refusals {
    ($($name:ident($($given:ident),*): $status:literal $code:literal $by:ident, $evidence:ident $source:literal,
        $text:literal $(at $target:literal)? $(inner $inner:literal)? $(detail $detail:literal $why:literal)?;)*) => {
        $(
            #[doc = concat!("Evidence: ", stringify!($evidence), " ", $source)]
            pub(crate) fn $name($($given: impl Display),*) -> Fault {
                Fault::new($status, $code, format!($text))
                    .by(Speaker::$by)
                    $(.at(format!($target)))?
                    $(.inner($inner))?
                    $(.detail(json!({"code": $detail, "message": format!($why)})))?
            }
        )*

        /// Status, code and evidence of each row.
        #[cfg(test)]
        const ROWS: &[(u16, &str, &str)] = &[$(($status, $code, stringify!($evidence))),*];
    };
}

refusals! {
    // ---- The gateway, and what all providers have in common ----

    resource_not_found(kind, name, group): 404 "ResourceNotFound" Gateway, R "",
        "The Resource '{kind}/{name}' under resource group '{group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix";
    parent_not_found(kind, parent): 404 "ParentResourceNotFound" Gateway, D "",
        "Failed to perform 'write' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found.";
    group_not_found(group): 404 "ResourceGroupNotFound" Gateway, R "",
        "Resource group '{group}' could not be found.";
    subscription_not_found(subscription): 404 "SubscriptionNotFound" Gateway, D "",
        "The subscription '{subscription}' could not be found.";
    invalid_subscription(subscription): 400 "InvalidSubscriptionId" Gateway, D "",
        "The provided subscription identifier '{subscription}' is malformed or invalid.";
    missing_api_version(): 400 "MissingApiVersionParameter" Gateway, D "",
        "The api-version query parameter (?api-version=) is required for all requests.";
    invalid_resource_type(kind, namespace, version): 404 "InvalidResourceType" Gateway, D "what a cloud without the type answers. The last sentence is ours, for people who wonder",
        "The resource type '{kind}' could not be found in the namespace '{namespace}' for api version '{version}'. The supported api-versions are ''. This cloud is an emulator, and the type is not emulated.";
    invalid_namespace(namespace): 404 "InvalidResourceNamespace" Gateway, D "but for the last sentence",
        "The resource namespace '{namespace}' is invalid. This cloud is an emulator, and the namespace is not emulated.";
    path_not_found(path): 404 "NotFound" Gateway, D "",
        "The requested path '{path}' was not found.";
    method_not_allowed(method): 405 "MethodNotAllowed" Provider, D "",
        "The requested resource does not support http method '{method}'.";
    authorization_failed(client, object, action, scope): 403 "AuthorizationFailed" Gateway, D "real bodies",
        "The client '{client}' with object id '{object}' does not have authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials.";
    linked_authorization_failed(client, object, action, scope, linked, source): 403 "LinkedAuthorizationFailed" Gateway, D "real bodies (azuredisk#1711, azure-docs#11362)",
        "The client '{client}' with object id '{object}' has permission to perform action '{action}' on scope '{scope}'; however, it does not have permission to perform action '{linked}' on the linked scope(s) '{source}' or the linked scope(s) are invalid.";
    invalid_template(why): 400 "InvalidTemplate" Gateway, D "the code and the beginning; what is wrong is told in words of ours",
        "Deployment template validation failed: '{why}'.";
    template_not_emulated(what): 400 "InvalidTemplate" Gateway, U "a refusal that Azure does not give",
        "Deployment template validation failed: this cloud is an emulator, and {what} is not emulated in templates.";
    deployment_not_found(name): 404 "DeploymentNotFound" Gateway, D "",
        "Deployment '{name}' could not be found.";
    deployment_active(name): 409 "DeploymentActive" Gateway, D "but for the times in it",
        "Unable to edit or replace deployment '{name}': previous deployment is still active. Please see https://aka.ms/arm-deploy for usage details.";
    any_deployment_failed(): 409 "DeploymentFailed" Gateway, D "",
        "At least one resource deployment operation failed. Please list deployment operations for details. Please see https://aka.ms/arm-deployment-operations for usage details.";
    missing_authorization(): 401 "AuthenticationFailed" Gateway, D "",
        "Authentication failed. The 'Authorization' header is missing.";
    invalid_token(): 401 "InvalidAuthenticationToken" Gateway, D "",
        "The access token is invalid.";
    wrong_audience(audience): 401 "InvalidAuthenticationTokenAudience" Gateway, D "hashicorp/go-azure-helpers#51",
        "The access token has been obtained for wrong audience or resource '{audience}'. It should exactly match with one of the allowed audiences 'https://management.core.windows.net/','https://management.core.windows.net','https://management.azure.com/','https://management.azure.com'.";
    wrong_tenant(issuer, tenant): 401 "InvalidAuthenticationTokenTenant" Gateway, D "azure-sdk-for-python#38382",
        "The access token is from the wrong issuer '{issuer}'. It must match the tenant 'https://sts.windows.net/{tenant}/' associated with this subscription. Please use the authority (URL) 'https://login.windows.net/{tenant}' to get the token. Note, if the subscription is transferred to another tenant there is no impact to the services, but information about new tenant could take time to propagate (up to an hour). If you just transferred your subscription and see this error message, please try back later.";
    location_required(): 400 "LocationRequired" Gateway, D "",
        "The location property is required for this definition.";
    location_unavailable(location, kind, known): 400 "LocationNotAvailableForResourceType" Gateway, D "",
        "The provided location '{location}' is not available for resource type '{kind}'. List of available regions for the resource type is '{known}'.";
    location_conflict(name, there, group, asked): 409 "InvalidResourceLocation" Gateway, D "",
        "The resource '{name}' already exists in location '{there}' in resource group '{group}'. A resource with the same name cannot be created in location '{asked}'. Please select a new resource name.";
    group_location_conflict(name, there): 409 "InvalidResourceGroupLocation" Gateway, D "",
        "Invalid resource group location '{name}'. The Resource group already exists in location '{there}'.";
    group_being_deleted(group): 409 "ResourceGroupBeingDeleted" Gateway, D "",
        "The resource group '{group}' is in deprovisioning state and cannot perform this operation.";
    invalid_content(why): 400 "InvalidRequestContent" Gateway, D "",
        "The request content was invalid and could not be deserialized: '{why}'.";
    invalid_tag_characters(names): 400 "InvalidTagNameCharacters" Gateway, D "coreos/tectonic-installer#596",
        "The tag names '{names}' have reserved characters '<,>,%,&,\\,?,/' or control characters.";
    tag_name_too_long(names): 400 "InvalidTagName" Gateway, D "limit; code and text are those of the check in Azure PowerShell (Az.Migrate)",
        "Tag key too large. Following tag name '{names}' exceeded the maximum length. Maximum allowed length for tag name - '512' characters.";
    tag_value_too_long(values): 400 "InvalidTagValueLength" Gateway, D "limit; code and text are those of the check in Azure PowerShell (Az.Migrate)",
        "Tag value too large. Following tag value '{values}' exceeded the maximum length. Maximum allowed length for tag value - '256' characters.";
    too_many_tags(count): 400 "InvalidTagCount" Gateway, D "limit; code and text are unverified",
        "The number of tags '{count}' exceeded the maximum. Maximum allowed number of tags - '50'.";
    invalid_filter(filter): 400 "InvalidFilterInQueryString" Gateway, D "",
        "Invalid $filter '{filter}' specified in the query string.";
    artifact_not_found(): 404 "NotFound" Provider, D "vagrant-azure#147, azvmimagebuilder#80",
        "Artifact: VMImage was not found.";
    content_too_large(): 413 "RequestContentTooLarge" Gateway, D "code and text (azure-api-management-devops-resource-kit#594)",
        "The request content size exceeds the maximum size of 4 MB.";
    unsupported_media_type(given): 415 "UnsupportedMediaType" Gateway, D "",
        "The content media type '{given}' is not supported. Only 'application/json' is supported.";
    invalid_name(kind, name): 400 "InvalidResourceName" Provider, D "",
        "Resource name '{name}' of type '{kind}' is invalid. The name must begin with a letter or number, end with a letter, number or underscore, and may contain only letters, numbers, underscores, periods, or hyphens.";

    api_version_unknown(version, known): 400 "InvalidApiVersionParameter" Gateway, D "azure-cli#28038",
        "The api-version '{version}' is invalid. The supported versions are '{known}'.";
    provider_not_registered(kind, location, version, known, locations): 400 "NoRegisteredProviderFound" Gateway, D "azure-cli#28496, migAz#246",
        "No registered resource provider found for location '{location}' and API version '{version}' for type '{kind}'. The supported api-versions are '{known}'. The supported locations are '{locations}'.";
    type_without_version(kind, namespace, version, known): 400 "InvalidResourceType" Gateway, D "azure-cli#2681: a list has no location",
        "The resource type '{kind}' could not be found in the namespace '{namespace}' for api version '{version}'. The supported api-versions are '{known}'.";
    token_expired(at, now): 401 "ExpiredAuthenticationToken" Gateway, D "vscode-azureappservice#2483",
        "The access token expiry UTC time '{at}' is earlier than current UTC time '{now}'.";
    deletion_blocked(group, staying, tracking): 409 "ResourceGroupDeletionBlocked" Gateway, D "bicep-registry-modules#1607",
        "Deletion of resource group '{group}' failed as resources with identifiers '{staying}' could not be deleted. The provisioning state of the resource group will be rolled back. The tracking Id is '{tracking}'. Please check audit logs for more details.";
    not_in_definition(member, position): 400 "InvalidRequestContent" Gateway, D "azure-rest-api-specs#286: a member that no resource has at its top",
        "The request content was invalid and could not be deserialized: 'Could not find member '{member}' on object of type 'ResourceDefinition'. Path '{member}', line 1, position {position}.'.";
    door_throttled(kind, subscription, limit, seconds): 429 "SubscriptionRequestsThrottled" Gateway, D "",
        "Number of {kind} requests for subscription '{subscription}' exceeded the limit of '{limit}' for time interval '00:00:01'. Please try again after '{seconds}' seconds.";
    invalid_group_name(name): 400 "InvalidResourceGroup" Provider, D "",
        "The provided resource group name '{name}' has these invalid characters or an invalid length. The name can only be a letter, digit, '-', '.', '(', ')' or '_'.";
    unknown_operation(id): 404 "NotFound" Provider, U "",
        "The entity was not found: operation '{id}'.";

    // ---- The compute provider ----

    unknown_member(member, on, path, position, root): 400 "BadRequest" Provider, R "on Azure Stack Hub (cloud-provider-azure#8919)",
        "Could not find member '{member}' on object of type '{on}'. Path '{path}', line 1, position {position}." at "{root}.{path}";
    wrong_type(why, path, position, root): 400 "BadRequest" Provider, D "the deserialiser's words; code and target as for an unknown member",
        "{why} Path '{path}', line 1, position {position}." at "{root}.{path}";
    missing_parameter(parameter): 400 "InvalidParameter" Provider, D "",
        "Required parameter '{parameter}' is missing (null)." at "{parameter}";
    unknown_expansion(): 400 "InvalidParameter" Provider, D "azure-rest-api-specs#9130: the compute provider does not know this `$expand`",
        "The request URL is not valid." at "$expand";
    out_of_range(target, value, least, most): 400 "InvalidParameter" Provider, D "lisa#692",
        "The value '{value}' of parameter '{target}' is out of range. Value '{value}' must be between '{least}' and '{most}' inclusive." at "{target}";
    property_change(property): 409 "PropertyChangeNotAllowed" Provider, D "family (azure-powershell#7621)",
        "Changing property '{property}' is not allowed." at "{property}";
    concurrent_request(): 409 "Conflict" Provider, D "",
        "The request failed due to conflict with a concurrent request.";
    preempted(): 409 "OperationPreempted" Provider, D "stands in the operation that was pushed aside (cloud-provider-azure PR#1356)",
        "Operation execution has been preempted by a more recent operation.";
    vm_deallocated(operation, vm): 409 "OperationNotAllowed" Provider, D "common VM error codes; the link: terraform#28218",
        "Operation '{operation}' is not allowed on VM '{vm}' since the VM is either deallocated or marked to be deallocated. Please refer to https://aka.ms/vmpowerstates to learn about different VM power states.";
    vm_must_run(): 409 "OperationNotAllowed" Provider, D "common VM error codes",
        "The operation requires the VM to be running (or set to run).";
    marked_for_deletion(operation, vm): 409 "OperationNotAllowed" Provider, D "common VM error codes; the names of the operations are unverified",
        "Operation '{operation}' is not allowed on VM '{vm}' since the VM is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to complete).";
    interface_without_primary(name): 400 "NetworkInterfaceMustHavePrimaryPropertySet" Provider, D "ansible#40648",
        "Network interface {name} must have Primary property set.";
    interfaces_need_deallocation(vm): 400 "AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported" Provider, D "a real body (azure-powershell#4565); that every exchange of interfaces needs it is unverified",
        "Virtual machine {vm} with a single network interface must be stop-deallocated before it can be updated to have multiple network interfaces and vice-versa.";
    disk_exists(name, group): 409 "ConflictingUserInput" Provider, D "public trackers",
        "Disk {name} already exists in resource group {group}. Only CreateOption.Attach is supported.";
    etag_mismatch(given, actual): 412 "PreconditionFailed" Provider, R "",
        "Etag provided in if-match header {given} does not match etag {actual} of resource.";
    already_exists(given, actual): 412 "PreconditionFailed" Provider, U "text: `If-None-Match: *` on a machine that exists",
        "Etag provided in if-none-match header {given} matches etag {actual} of resource.";
    too_many_data_disks(most): 409 "OperationNotAllowed" Provider, D "azuredisk PR#2883, terraform#7389",
        "The maximum number of data disks allowed to be attached to a VM of this size is {most}." at "dataDisks";
    lun_in_use(lun): 400 "InvalidParameter" Provider, D "openshift-azure#83",
        "A disk at LUN {lun} already exists." at "dataDisk.lun";
    attached_elsewhere(name, disk, vm, other): 409 "ConflictingUserInput" Provider, D "azuredisk#1378",
        "Cannot attach the disk {name} to VM {vm} because it is already attached to VM {other}. A disk can be attached to only one VM at a time." at "{disk}";
    owned_by(disk, vm): 409 "ConflictingUserInput" Provider, D "public trackers: the late form",
        "Disk '{disk}' cannot be attached as the disk is already owned by VM '{vm}'." at "{disk}";
    being_detached(disk, vm): 409 "AttachDiskWhileBeingDetached" Provider, D "kubernetes#78657",
        "Cannot attach data disk '{disk}' to VM '{vm}' because the disk is currently being detached or the last detach operation failed. Please wait until the disk is completely detached and then try again or delete/detach the disk explicitly again.";
    detach_unattached(disk, vm): 409 "DetachUnattachedDisk" Provider, D "code (kubernetes#91948), unverified text",
        "Cannot detach data disk '{disk}' from VM '{vm}' because it is not attached.";
    disk_not_found(name): 404 "NotFound" Provider, U "text; the 404 is documented (the Go drivers drop missing disks on it)",
        "Disk {name} is not found." at "dataDisk.managedDisk.id";
    disk_is_attached(name, vm): 409 "OperationNotAllowed" Provider, D "azuredisk",
        "Disk {name} is attached to VM {vm}.";
    cannot_shrink(id): 409 "OperationNotAllowed" Provider, D "MicrosoftDocs/azure-docs PR#57951; the code is unverified",
        "The disk/snapshot resource with id {id} cannot be resized down. Reducing disk/snapshot size is not supported in Azure to prevent data loss. If you do need to reduce the size of the disk, please create new snapshot/disks with the appropriate size. More information is available at https://aka.ms/AzureDisksFAQ" at "disk.diskSizeGB";
    resize_while_attached(name, vm): 409 "OperationNotAllowed" Provider, D "kubernetes#96706",
        "Cannot resize disk {name} while it is attached to running VM {vm}. Resizing a disk of an Azure Virtual Machine requires the virtual machine to be deallocated. Please stop your VM and retry the operation." inner "ChangeDiskSizeWhileAttachedNotAllowed";
    resize_beyond_4_tib(name, vm): 409 "OperationNotAllowed" Provider, D "text (MicrosoftDocs/azure-docs#89430) and inner code (troubleshoot-disk-resize-failures)",
        "Disks cannot be resized beyond 4095 GiB when attached to a VM. Detach disk {name} from VM {vm} and try again. If caching is enabled for this disk, it will not be supported for disks greater than 4095 GiB." inner "InvalidResizeForLargeDisks";
    resize_with_signature(name): 409 "OperationNotAllowed" Provider, D "inner code (troubleshoot-disk-resize-failures), unverified text",
        "Cannot resize disk {name} while there is an active shared access signature outstanding for it. Call EndGetAccess before resizing the disk." inner "ChangeDiskSizeWhileActiveSasNotAllowed";
    resize_shared_disk(name): 409 "OperationNotAllowed" Provider, D "troubleshoot-disk-resize-errors",
        "Cannot resize shared disk {name} while it is attached to running VM(s)." inner "LiveResizeSharedDiskNotAllowed";
    live_change_unsupported_size(size): 409 "OperationNotAllowed" Provider, D "troubleshoot-disk-resize-errors",
        "Change in disk property of VM of size {size} is not supported." inner "LiveDiskPropertyChangeOfVMOfSizeNotSupported";
    premium_unsupported(size, sku, disk): 400 "InvalidParameter" Provider, D "google/cloud-forensics-utils#488",
        "Requested operation cannot be performed because the VM size {size} does not support the storage account type {sku} of disk '{disk}'. Consider updating the VM to a size that supports Premium storage." at "dataDisk.managedDisk.storageAccountType";
    unsupported_zone(zone, kind, name, location): 400 "InvalidAvailabilityZone" Provider, D "",
        "The zone(s) '{zone}' for resource '{kind}/{name}' is not supported. The supported zones for location '{location}' are '1,2,3'";
    signature_outstanding(thing, name, doing, before, word): 409 "Conflict" Provider, D "for disks, unverified for snapshots",
        "{thing} {name} cannot be {doing} because there is an active shared access signature outstanding for it. Call EndGetAccess before {before} the {word}.";
    not_a_resource_id(parameter, id): 400 "InvalidParameter" Provider, U "",
        "The value '{id}' of parameter '{parameter}' is not a resource id." at "{parameter}";
    source_in_another_region(name): 404 "NotFound" Provider, D "what the provider says of a source that is in another region (azuredisk#1891, azure-cli#11909)",
        "Resource {name} is not found.";
    source_of_another_type(parameter): 400 "InvalidParameter" Provider, D "azure-cli#22370; the target is unverified",
        "Entity not of expected type" at "{parameter}";
    source_not_ready(id, why): 409 "OperationNotAllowed" Provider, D "rule (disks-copy-incremental-snapshot-across-regions); code and text are unverified",
        "Resource {id} cannot be used as a source: {why}.";
    smaller_than_source(root, gib, least): 400 "InvalidParameter" Provider, D "rule; the text is unverified",
        "The specified disk size {gib} GB is smaller than the size {least} GB of the source." at "{root}.diskSizeGB";
    source_in_another_edge_zone(own, sources): 400 "InvalidParameter" Provider, D "azuredisk PR#2450; the end of the text is unverified",
        "The ExtendedLocation '{own}' of the target resource does not match the ExtendedLocation '{sources}' of the source resource.";
    source_in_another_zone(name, source): 400 "InvalidParameter" Provider, D "azuredisk#571, azuredisk#685, azure-sdk-for-java#11759",
        "The resource '{name}' in an availability zone cannot be copied from the source '{source}' in a different availability zone." at "sourceResourceId";
    sectors_of_source(id, sku): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified, and that it holds for disks",
        "Resource {id} has a logical sector size of 4096 bytes. Only Ultra and Premium SSD v2 disks can be created from it, no disk of SKU {sku}.";
    other_sectors_than_source(asked, bytes): 400 "InvalidParameter" Provider, D "rule (disks-convert-types); the text is unverified",
        "The logical sector size {asked} is not allowed: the source has a logical sector size of {bytes} bytes." at "disk.creationData.logicalSectorSize";
    full_snapshot_as_source(id, sku): 409 "OperationNotAllowed" Provider, D "rule (disks-convert-types); code and text are unverified",
        "A disk of SKU {sku} cannot be created from the full snapshot {id}: only incremental snapshots are supported.";
    no_instant_access(): 400 "InvalidParameter" Provider, U "that Ultra and Premium v2 disks have it is documented (disks-instant-access-snapshots)",
        "Instant access is supported for incremental snapshots of Ultra and Premium SSD v2 disks only." at "snapshot.creationData.instantAccessDurationMinutes";
    instant_access_of_filling_disk(disk): 409 "OperationNotAllowed" Provider, D "rule (disks-instant-access-snapshots); code and text are unverified",
        "An instant access snapshot of disk {disk} cannot be created while the disk is being hydrated.";
    instant_access_sku(snapshot, sku): 409 "OperationNotAllowed" Provider, D "rule (disks-instant-access-snapshots); code and text are unverified",
        "A disk of SKU {sku} cannot be created from the instant access snapshot {snapshot}: only Ultra and Premium SSD v2 disks can.";
    instant_access_size(snapshot): 409 "OperationNotAllowed" Provider, D "rule (disks-instant-access-snapshots); code and text are unverified",
        "A disk that is created from the instant access snapshot {snapshot} cannot be larger than the snapshot.";
    too_many_disks_by_instant_access(snapshot, most): 409 "OperationNotAllowed" Provider, D "rule (disks-instant-access-snapshots); code and text are unverified",
        "No more than {most} disks can be created at a time from the instant access snapshots of the disk of {snapshot}.";
    too_many_disks_of_snapshot(snapshot, most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "No more than {most} disks can be created at a time from snapshot {snapshot}.";
    too_many_background_copies(most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots, disks-convert-types); code and text are unverified",
        "The subscription has {most} active background copies of disks, which is the most that it can have.";
    too_many_pending_snapshots(disk, most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "Disk {disk} has {most} snapshots whose background copy is pending, which is the most that it can have.";
    disk_has_pending_snapshot(disk, snapshot): 409 "OperationNotAllowed" Provider, U "",
        "Disk {disk} cannot be deleted while the background copy of its snapshot {snapshot} is pending.";
    encryption_while_copied(id): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots, disks-instant-access-snapshots); code and text are unverified",
        "The encryption of {id} cannot be changed while a background copy of it is active.";
    sku_changed_too_often(name, most): 409 "OperationNotAllowed" Provider, D "rule (disks-convert-types); code and text are unverified",
        "The SKU of disk {name} can be changed {most} times a day only.";
    performance_changed_too_often(name, most): 409 "OperationNotAllowed" Provider, D "rule (disks-deploy-premium-v2, disks-enable-ultra-ssd); code and text are unverified",
        "The performance of disk {name} can be changed {most} times within 24 hours only.";
    tier_lowered_too_often(name): 409 "OperationNotAllowed" Provider, D "rule (disks-change-performance); code and text are unverified",
        "The performance tier of disk {name} can be lowered once within 12 hours only.";
    bursting_while_running(name, vm): 409 "OperationNotAllowed" Provider, D "rule (disks-enable-bursting); code and text are unverified",
        "On-demand bursting of disk {name} cannot be enabled while the disk is attached to running VM {vm}.";
    bursting_disabled_too_soon(name): 409 "OperationNotAllowed" Provider, D "rule (disks-enable-bursting); code and text are unverified",
        "On-demand bursting of disk {name} cannot be disabled within 12 hours after it has been enabled.";
    source_changed(property, name): 400 "BadRequest" Provider, D "azuredisk#119, MicrosoftDocs/azure-docs#34967",
        "Changing property '{property}' is not allowed for existing disk '{name}'.";
    snapshot_sku_unavailable(sku, known): 400 "InvalidParameter" Provider, D "azure-sdk-for-java#29811; the target is unverified",
        "SKU {sku} is not supported for resource type Snapshot in this region. Supported SKUs for this region are {known}" at "sku";
    incremental_is_standard(sku): 400 "InvalidParameter" Provider, D "rule (disks-incremental-snapshots); the text is unverified",
        "Incremental snapshots cannot have the SKU {sku}. Supported SKUs are Standard_LRS,Standard_ZRS." at "sku";
    only_incremental(disk, sku): 409 "OperationNotAllowed" Provider, D "rule and code (terraform-provider-azurerm#21099); the text is unverified",
        "Only incremental snapshots are supported for disk {disk} of SKU {sku}.";
    snapshot_in_another_subscription(disk): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "An incremental snapshot of disk {disk} cannot be created in another subscription than the disk's.";
    too_many_snapshots(disk, most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "Disk {disk} has {most} incremental snapshots, which is the most that a disk can have.";
    snapshots_too_fast(disk, most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "No more than {most} incremental snapshots of disk {disk} can be created in five minutes.";
    copy_of_full_snapshot(): 409 "OperationNotAllowed" Provider, D "rule (azure-docs PR#124149, azure-cli#22370); code and text are unverified",
        "CopyStart creation is not supported for full snapshots.";
    copy_in_region(location): 409 "OperationNotAllowed" Provider, U "",
        "CopyStart creation is not supported within region {location}. Use the create option Copy.";
    copy_under_way(other): 409 "OperationNotAllowed" Provider, D "rule (disks-copy-incremental-snapshot-across-regions); code and text are unverified",
        "Only one incremental snapshot of a disk can be copied at a time. The copy to {other} has not completed.";
    copy_out_of_order(other): 409 "OperationNotAllowed" Provider, D "rule (disks-copy-incremental-snapshot-across-regions); code and text are unverified",
        "Incremental snapshots of a disk must be copied in the order in which they were created. {other} is a copy of a later one.";
    too_many_copies(most): 409 "OperationNotAllowed" Provider, D "rule (disks-copy-incremental-snapshot-across-regions); code and text are unverified",
        "No more than {most} snapshots can be copied at the same time to a region of a subscription.";
    snapshot_being_copied(name, by): 409 "OperationNotAllowed" Provider, U "",
        "Snapshot {name} cannot be deleted because {by} is being created from it.";
    snapshot_is_read_only(name): 409 "OperationNotAllowed" Provider, U "",
        "Write access to snapshot {name} is not permitted.";
    too_many_signatures(most): 409 "OperationNotAllowed" Provider, D "rule (disks-incremental-snapshots); code and text are unverified",
        "No more than {most} snapshots of a snapshot family can have a shared access signature at the same time.";
    attached_to_running(name, vm): 409 "Conflict" Provider, D "",
        "Access not permitted because disk {name} is currently attached to running VM {vm}.";
    empty_disk_with_id(): 400 "InvalidParameterConflictingProperties" Provider, D "",
        "The property 'dataDisk.createOption' cannot have the value 'Empty' when property 'dataDisk.managedDisk.id' is set.";
    set_in_use(set): 409 "OperationNotAllowed" Provider, D "",
        "Availability Set {set} cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any VM.";

    nested_parent_not_found(parent): 404 "ParentResourceNotFound" Gateway, D "public trackers",
        "Can not perform requested operation on nested resource. Parent resource '{parent}' not found.";
    instance_id_no_number(): 400 "InvalidParameter" Provider, R "",
        "Virtual Machine Scale Set VM instanceId must be a number." at "instanceId";
    instance_not_active(number): 400 "InvalidParameter" Provider, D "microsoft/onefuzz#2547, azure-cli#25476",
        "The provided instanceId {number} is not an active Virtual Machine Scale Set VM instanceId." at "instanceIds";
    instance_not_provisioned(operation, number, set): 409 "OperationNotAllowed" Provider, D "kubernetes#75478, where an operation ended with it",
        "Operation {operation} {number} of virtual machine scale set {set} is not allowed because the VM instance is not provisioned yet.";
    size_of_set_unknown(size): 400 "InvalidParameter" Provider, U "as of machines",
        "The value {size} provided for the VM size is not valid. Find out more on the available VM sizes in each region at https://aka.ms/azure-regions." at "sku.name";
    too_many_instances_of_one_group(set, most): 409 "OperationNotAllowed" Provider, U "the limit is documented",
        "Virtual machine scale set {set} of a single placement group cannot have more than {most} instances. Set singlePlacementGroup to false." at "singlePlacementGroup";
    one_primary_interface(own): 400 "InvalidParameter" Provider, U "the rule is documented",
        "Exactly one network interface configuration of {own} must be primary." at "networkInterfaceConfiguration.primary";
    set_is_not_flexible(set): 400 "BadRequest" Provider, U "the rule is documented",
        "A virtual machine can be added to a virtual machine scale set of flexible orchestration only, not to {set}.";
    extension_needs_running_machine(): 409 "OperationNotAllowed" Provider, D "public trackers",
        "Cannot modify extensions in the VM when the VM is not running.";
    extension_of_handler_exists(name, handler): 400 "BadRequest" Provider, D "public trackers, for Linux",
        "Multiple VMExtensions per handler not supported for OS type 'Linux'. VMExtension '{name}' with handler '{handler}' already added or specified in input.";

    quota_exceeded(name, location, limit, usage, more, least): 409 "OperationNotAllowed" Provider, D "a real body: google/cloud-forensics-utils#488",
        "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - Deployment Model: Resource Manager, Location: {location}, Current Limit: {limit}, Current Usage: {usage}, Additional Required: {more}, (Minimum) New Limit Required: {least}. Submit a request for Quota increase at https://aka.ms/ProdportalCRP/#blade/Microsoft_Azure_Capacity/UsageAndQuota.ReactView by specifying parameters listed in the 'Details' section for deployment to succeed.";
    too_many_requests(): 429 "OperationNotAllowed" Provider, D "troubleshooting-throttling-errors",
        "The server rejected the request because too many requests have been received for this subscription." inner "TooManyRequestsReceived";

    // ---- The network provider ----

    network_child_not_found(id): 404 "NotFound" Network, R "",
        "Resource {id} not found.";
    another_operation(url): 409 "AnotherOperationInProgress" Network, D "Azure/bicep#5132; the status is unverified",
        "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: {url}.";
    invalid_expansion(property): 400 "InvalidExpandQueryOptionValue" Network, D "text (azure-sdk-for-php#977), unverified code",
        "$expand query option value is invalid. The resource does not have property {property} or the property does not represent a reference to another resource.";
    subnet_outside(name, network): 400 "NetcfgSubnetRangeOutsideVnet" Network, D "terraform#10826, MicrosoftDocs/azure-docs PR#123869",
        "Subnet '{name}' is not valid because its IP address range is outside the IP address range of virtual network '{network}'.";
    subnets_overlap(name, network): 400 "NetcfgSubnetRangesOverlap" Network, D "MicrosoftDocs/azure-docs PR#123869",
        "Subnet '{name}' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '{network}'.";
    invalid_reference(id, by): 400 "InvalidResourceReference" Network, D "",
        "Resource {id} referenced by resource {by} was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.";
    invalid_prefix_format(prefix, id): 400 "InvalidAddressPrefixFormat" Network, D "a real body (the documentation of Policy for Bicep and Terraform)",
        "Address prefix {prefix} of resource {id} is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24.";
    invalid_prefix_notation(prefix, id, right): 400 "InvalidCIDRNotation" Network, D "public trackers",
        "The address prefix {prefix} in resource {id} has an invalid CIDR notation. For the given prefix length, the address prefix should be {right}.";
    subnet_without_prefix(name): 400 "NoAddressPrefixOrPoolProvided" Network, D "code (public trackers), unverified text",
        "Subnet '{name}' has neither an address prefix nor an IPAM pool.";
    subnet_too_small(name, prefix): 400 "InvalidSubnetPrefixLength" Network, U "the limit is documented (the FAQ of virtual networks)",
        "Subnet '{name}' with address prefix {prefix} is too small. The smallest supported IPv4 subnet is /29.";
    no_primary_configuration(name): 400 "NetworkInterfaceMustHaveOneOneIPConfigAsPrimary" Network, D "azure-sdk-for-go#259",
        "Network Interface {name} specifies multiple IPConfigurations but none of the IPConfigurations is specified as Primary.";
    address_not_asked(): 400 "PrivateIPAddressIsNullOrEmpty" Network, D "MicrosoftDocs/feedback#520",
        "Private IP address is null or empty in the CheckIpAddressAvailability call. Specify IpAddress=$(ipaddress) as a query parameter in the request URI.";
    address_in_no_subnet(address, network): 400 "PrivateIPAddressNotInAnySubnet" Network, D "code (the SDK for Java tells it apart), unverified text",
        "Private IP address {address} does not belong to the range of any subnet of virtual network {network}.";
    subnet_full(name, prefix): 400 "SubnetIsFull" Network, D "azure-docs#88211",
        "Subnet {name} with address prefix {prefix} does not have enough capacity for 1 IP addresses.";
    address_not_in_subnet(address, prefix): 400 "PrivateIPAddressNotInSubnet" Network, D "code, unverified text",
        "Private static IP address {address} does not belong to the range of subnet prefix {prefix}.";
    address_allocated(configuration, address, by): 400 "PrivateIPAddressIsAllocated" Network, D "acs-engine#1867: the configuration's id, and the id of the interface that has the address",
        "IP configuration {configuration} is using the private IP address {address} which is already allocated to resource {by}.";
    subnet_in_use(name, by): 400 "InUseSubnetCannotBeDeleted" Network, D "",
        "Subnet {name} is in use by {by} and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.";
    nic_in_use(nic, vm): 400 "NicInUse" Network, D "",
        "Network Interface {nic} is used by existing resource {vm}. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.";
    etag_of_network_differs(given, actual, id): 412 "PreconditionFailed" Provider, R "",
        "Precondition failed."
        detail "PreconditionFailedEtagMismatch" "Etag provided in if-match header {given} does not match etag {actual} of resource {id} in NRP data store.";
    missing_value(what): 400 "InvalidRequestFormat" Provider, U "the code is the provider's for a body that lacks something",
        "Cannot parse the request."
        detail "MissingJsonReferenceId" "Value for {what} is missing.";
    superseded(name, older, newer): 409 "Canceled" Provider, D "real bodies with PutLoadBalancerOperation and the name of a write of its pool; other names are unverified",
        "Operation was canceled."
        detail "CanceledAndSupersededDueToAnotherOperation" "Operation {name} ({older}) was canceled and superseded by operation {name} ({newer}).";
    not_provisioned(id, by, state, operation): 429 "RetryableError" Provider, D "a real body: hashicorp/terraform#7986",
        "A retryable error occurred."
        detail "ReferencedResourceNotProvisioned" "Cannot proceed with operation because resource {id} used by resource {by} is not in Succeeded state. Resource is in {state} state and the last operation that updated/is updating the resource is {operation}.";
    address_must_be_static(id): 400 "StandardSkuPublicIPAddressesMustBeStatic" Network, D "azure-docs#42889, pulumi-azure-native#1597",
        "Standard sku publicIp {id} must have AllocationMethod set to Static.";
    address_of_ipv6_is_dynamic(): 400 "CannotSpecifyPublicIpAllocationMethodAsStaticForIpV6PublicIp" Network, D "terraform-provider-azurerm#14762",
        "Cannot specify publicIpAllocationMethod as Static for IPv6 PublicIp";
    invalid_idle_timeout(name): 400 "InvalidIdleTimeout" Network, D "terraform-provider-azurerm#3579; the code is unverified",
        "Public IP address {name} has invalid Idle Timeout. The value must be between 4 and 30.";
    invalid_domain_name_label(label): 400 "InvalidDomainNameLabel" Network, D "deis#4854",
        "The domain name label {label} is invalid. It must conform to the following regular expression: ^[a-z][a-z0-9-]{{1,61}}[a-z0-9]$.";
    dns_record_in_use(name): 400 "DnsRecordInUse" Network, D "azure-quickstart-templates#4979",
        "DNS record {name} is already used by another public IP.";
    address_in_use(id, by): 400 "PublicIPAddressCannotBeDeleted" Network, D "terraform#2566",
        "Public IP address {id} can not be deleted since it is still allocated to resource {by}. In order to delete the public IP, disassociate/detach the Public IP address from the resource.  To learn how to do this, see aka.ms/deletepublicip.";
    address_taken(configuration, id, by): 400 "PublicIPAddressInUse" Network, D "azure-tools-for-java#91; the code is unverified",
        "IP configuration {configuration} is referencing public IP address {id} that is already allocated to resource {by}.";
    address_named_twice(id, by): 400 "PublicIPReferencedByMultipleIPConfigs" Network, D "cloud-provider-azure#4243",
        "Public ip address {id} is referenced by multiple ipconfigs in resource {by}.";
    zones_changed(id, had, asked): 400 "ResourceAvailabilityZonesCannotBeModified" Network, D "azure-cli#16653; the code is unverified",
        "Resource {id} has an existing availability zone constraint {had} and the request has availability zone constraint {asked}, which do not match. Zones cannot be added/updated/removed once the resource is created. The resource cannot be updated from regional to zonal or vice-versa.";
    sku_changed(had, asked, id): 400 "SkuCannotBeChangedOnUpdate" Network, D "azure-cli#12570; the code is unverified",
        "Sku property is set at creation time and cannot be changed from {had} to {asked} on resource update for resource {id}.";
    fixed_property_changed(property, id): 400 "PropertyCannotBeChanged" Network, U "",
        "Property {property} of resource {id} is set at creation time and cannot be changed.";
    too_many_addresses(limit): 400 "PublicIPCountLimitReached" Network, D "openshift-azure#2252",
        "Cannot create more than {limit} public IP addresses for this subscription in this region.";
    too_many_static_addresses(limit): 400 "StaticPublicIPCountLimitReached" Network, D "tectonic-installer#1454",
        "Cannot create more than {limit} public IP addresses with static allocation method for this subscription in this region.";
    invalid_prefix_length(length, least, most): 400 "InvalidPublicIPPrefixLength" Network, U "the limits are documented",
        "The prefix length {length} is invalid. It must be between {least} and {most}.";
    prefix_needs_standard_sku(id): 400 "PublicIPPrefixMustBeStandardSku" Network, U "that there is only the Standard SKU is documented",
        "Public IP prefix {id} and its public IP addresses must be of the Standard sku.";
    prefix_full(id): 400 "PublicIpPrefixOutOfIpAddresses" Network, U "",
        "Public IP prefix {id} has no free public IP address.";
    prefix_in_use(id, by): 400 "InUsePublicIpPrefixCannotBeDeleted" Network, D "kube-egress-gateway#1223; the text is unverified",
        "Public IP prefix {id} is in use by {by} and cannot be deleted.";
    retry_after_operation(name, operation, id, seconds): 429 "RetryableError" Provider, D "cloud-provider-azure's retry rules; the names are unverified",
        "A retryable error occurred."
        detail "RetryableErrorDueToAnotherOperation" "Operation {name} ({operation}) is updating resource {id}. The call can be retried in {seconds} seconds.";
    duplicate_name(name, member): 400 "InvalidRequestFormat" Network, U "the code is the provider's for a body that contradicts itself",
        "Cannot parse the request. {member} has more than one item of the name {name}.";
    subnet_without_ipv6(subnet, configuration): 400 "SubnetHasNoIPv6Prefix" Network, U "that dual stack needs a prefix of each family is documented",
        "Subnet {subnet} has no IPv6 address prefix for {configuration}.";
    too_many_network_resources(what, limit): 400 "ResourceCountLimitReached" Network, U "the limits are documented (azure-virtual-network-limits)",
        "Cannot create more than {limit} {what} for this subscription in this region.";
    frontend_in_use(id, by): 400 "InUseFrontendIPConfigurationCannotBeDeleted" Network, U "",
        "Frontend IP configuration {id} is in use by {by} and cannot be deleted.";
    pool_in_use(id, by): 400 "InUseBackendAddressPoolCannotBeDeleted" Network, U "that rules keep a pool is documented (InvalidResourceReference in a whole write)",
        "Backend address pool {id} is in use by {by} and cannot be deleted.";
    pool_in_use_by_set(pool, set): 400 "BackendAddressPoolInUseByVirtualMachineScaleSet" Network, D "text (vm-scale-sets#53); the code is unverified",
        "Cannot remove backend address pool {pool} from load balancer since it is in use by virtual machine scale set {set}.";
    nat_pool_in_use_by_set(pool, set): 400 "InboundNatPoolInUseByVirtualMachineScaleSet" Network, D "text (azure-powershell#4698); the code is unverified",
        "Cannot remove inbound nat pool {pool} from load balancer since it is in use by virtual machine scale set {set}.";
    balancer_in_use_by_set(balancer, set): 400 "LoadBalancerInUseByVirtualMachineScaleSet" Network, D "cloud-provider-azure, which reads the set from the text",
        "Cannot delete load balancer {balancer} since its child resources lb are in use by virtual machine scale set {set}.";
    nat_rule_in_use(id, by): 400 "InUseInboundNatRuleCannotBeDeleted" Network, U "",
        "Inbound NAT rule {id} is in use by {by} and cannot be deleted.";
    interface_of_two_balancers(nic, one, other): 400 "NetworkInterfaceUsesMultipleLoadBalancersOfSameType" Network, D "seanknox/aztack#3",
        "Network interface {nic} references more than one load balancer of the same type (internal or public): {one}, {other}.";
    backend_of_another_sku(balancer, address): 400 "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed" Network, D "pivotal-cf/terraforming-azure#41",
        "Different basic sku and standard sku load balancer or public Ip resources in availability set is not allowed {balancer} and {address}.";
    backend_of_another_set(nic, balancer): 400 "NetworkInterfaceAndLoadBalancerAreInDifferentAvailabilitySets" Network, D "kubernetes#58600, its beginning",
        "Network interface {nic} uses load balancer {balancer} associated with different availability set.";
    balancer_and_address_differ(sku, balancer, other, address): 400 "PublicIPAndLBSkuDoNotMatch" Network, D "terraform-azurerm-loadbalancer#32",
        "{sku} sku load balancer {balancer} cannot reference {other} sku publicIP {address}.";
    too_many_frontends(most): 400 "LoadBalancerFrontendIPConfigurationCountLimitReached" Network, D "acs-engine#447",
        "A load balancer cannot have more than {most} FrontendIPConfigurations.";
    too_many_rules(most): 400 "LoadBalancerRuleCountLimitReached" Network, U "the limit is documented",
        "A load balancer cannot have more than {most} load balancing and inbound NAT rules.";
    too_many_rules_of_interface(configuration, most): 400 "IpConfigurationRuleCountLimitReached" Network, D "MicrosoftDocs/azure-docs#47423, whose number is that of a load balancer with an outbound rule; the code is unverified",
        "IpConfiguration {configuration} cannot have more than {most} NAT or load balancing rules combined.";
    too_many_backends(pool, most): 400 "LoadBalancerBackendCountLimitReached" Network, U "the limit is documented",
        "Backend address pool {pool} cannot have more than {most} addresses.";
    frontend_without_address(id): 400 "FrontendIPConfigurationMustHaveOneAddress" Network, U "the rule is documented",
        "Frontend IP configuration {id} must name either a subnet, a public IP address or a public IP prefix.";
    no_frontend_but_others(id): 400 "LoadBalancerWithoutFrontendIPCantHaveChildResources" Network, D "terraform-provider-azurerm#774",
        "Load Balancer {id} does not have Frontend IP Configuration, but it has other child resources. This setup is not supported.";
    last_frontend_removed(id): 400 "DeletingAllIpConfigsInLoadbalancerNotSupported" Network, D "terraform-provider-azurerm#31245; the text after its beginning is unverified",
        "Deleting all frontendIPConfigs from load balancer {id} is not supported. Delete the load balancer instead.";
    frontends_of_both_types(id): 400 "LoadBalancerFrontendsOfDifferentTypes" Network, U "the rule is documented",
        "Load balancer {id} cannot have both internal and public frontend IP configurations.";
    frontend_with_zones(id): 400 "FrontendIPConfigurationZonesNotSupported" Network, U "that zones are those of the public address, and none of a Basic load balancer, is documented",
        "Frontend IP configuration {id} cannot have availability zones.";
    invalid_rule_idle_timeout(id, least, most): 400 "InvalidIdleTimeout" Network, D "limits (terraform-provider-azurerm#24729); code and text are unverified",
        "Rule {id} has invalid Idle Timeout. The value must be between {least} and {most}.";
    invalid_port(id): 400 "LoadBalancingRuleInvalidPort" Network, U "the limits are documented",
        "Load balancing rule {id} has an invalid port. Frontend ports are between 0 and 65534, backend ports between 0 and 65535.";
    all_ports_need_all_protocols(id): 400 "LoadBalancingRuleInvalidProtocolAndPort" Network, U "the rule is documented",
        "Load balancing rule {id} must have frontend and backend port 0 if its protocol is All, and no port 0 otherwise.";
    all_ports_need_internal_standard(id): 400 "LoadBalancingRuleHaPortsNotSupported" Network, U "the rule is documented",
        "Load balancing rule {id} of all ports is supported by internal load balancers of the Standard sku only.";
    rules_share_port(one, other, protocol, port, frontend): 400 "RulesUseSameFrontendPortProtocolAndIPConfig" Network, U "that ports of a frontend are unique is documented",
        "Rules {one} and {other} use the same protocol {protocol} and frontend port {port} of the same frontend IP configuration {frontend}.";
    rules_share_backend(one, other, protocol, port, pool): 400 "RulesUseSameBackendPortProtocolAndPool" Network, D "MicrosoftDocs/azure-docs#117762",
        "Load balancing rules {one} and {other} with floating IP disabled use the same protocol {protocol} and backend port {port}, and must not be used with the same backend address pool {pool}.";
    invalid_probe(id): 400 "InvalidProbe" Network, U "the limits are documented",
        "Probe {id} is invalid. Its port must be between 1 and 65535, its interval at least 5 seconds, its threshold between 1 and 100.";
    invalid_probe_path(id): 400 "InvalidProbeRequestPath" Network, U "the rule is documented",
        "Probe {id} must have a request path if its protocol is Http or Https, and none if it is Tcp.";
    outbound_rules_unsupported(id, most): 400 "OutboundRulesNotSupported" Network, U "the rule and the limit are documented",
        "Load balancer {id} cannot have these outbound rules. Public load balancers of the Standard sku can; this one can have {most}.";
    invalid_outbound_ports(id): 400 "InvalidAllocatedOutboundPorts" Network, U "the rule is documented",
        "Outbound rule {id} has invalid allocated outbound ports. The value must be a multiple of 8 up to 64000.";
    outbound_rules_share_frontend(frontend, one, other): 400 "MoreThanOneOutboundRuleUsingSameFrontendIPConfigurationAndProtocolIsNotSupported" Network, D "AzLoadBalancerMigration#10",
        "Is is not supported to have more than a single outbound rule using frontendIPConfiguration {frontend} with same or overlapping protocol. This frontendIPConfiguration is used by the following outbound rules: {one},{other}";
    rule_must_disable_snat(id): 400 "LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule" Network, D "code, unverified text",
        "Load balancing rule {id} must disable outbound SNAT, since an outbound rule references the same frontend IP configuration.";
    addresses_need_standard(pool): 400 "BackendAddressesNotSupportedForBasicLoadBalancer" Network, U "the rule is documented",
        "Backend address pool {pool} of a load balancer of the Basic sku cannot have addresses.";
    backend_outside_network(address, pool, network): 400 "BackendAddressNotInVirtualNetwork" Network, U "the rule is documented",
        "Address {address} of backend address pool {pool} does not belong to virtual network {network}.";
    backend_named_twice(address, pool): 400 "DuplicateBackendAddress" Network, U "",
        "Backend address pool {pool} has address {address}, or its name, more than once.";
    security_group_in_use(id, by): 400 "InUseNetworkSecurityGroupCannotBeDeleted" Network, D "a public tracker, but for the list's form",
        "Network security group {id} cannot be deleted because it is in use by the following resources: {by}. In order to delete the Network security group, remove the association with the resource(s). To learn how to do this, see aka.ms/deletensg.";
    too_many_security_rules(id, most): 400 "SecurityRuleCountLimitReached" Network, U "the limit is documented",
        "Network security group {id} cannot have more than {most} security rules.";
    too_many_rule_prefixes(id, most): 400 "SecurityRulePrefixCountLimitReached" Network, U "the limit is documented",
        "Network security group {id} cannot have more than {most} source or destination address prefixes.";
    invalid_rule_priority(given): 400 "SecurityRuleInvalidPriority" Network, D "code and text (public trackers)",
        "Security rule has invalid Priority. Value provided: {given} Allowed range 100-4096.";
    security_rules_conflict(one, other): 400 "SecurityRuleConflict" Network, D "terraform-provider-azurerm#11137",
        "Security rule {one} conflicts with rule {other}. Rules cannot have the same Priority and Direction. To learn more, see aka.ms/nsgrules.";
    rule_lacks(id, members): 400 "SecurityRuleParametersMissing" Network, D "Azure/sap-hana#135",
        "Required security rule parameters are missing for security rule with Id: {id}. Security rule must specify {members}.";
    invalid_rule_ports(given): 400 "SecurityRuleInvalidPortRange" Network, D "azure-cli#23499",
        "Security rule has invalid Port range. Value provided: {given}. Value should be an integer OR integer range with '-' delimiter. Valid range 0-65535.";
    invalid_rule_prefix(id, given): 400 "SecurityRuleInvalidAddressPrefix" Network, D "azure-powershell#4557, terraform-provider-azurerm#16761",
        "Security rule {id} has invalid Address prefix. Value provided: {given}";
    tag_among_prefixes(side, id, given): 400 "SecurityRuleParameterContainsUnsupportedValue" Network, D "terraform-provider-azurerm#5617",
        "Security rule parameter {side}AddressPrefix for rule with Id {id} cannot specify existing VIRTUALNETWORK, INTERNET, AZURELOADBALANCER, '*' or system tags. Unsupported value used: {given}.";
    prefixes_overlap(side, id, one, other): 400 "OverlappingSubnetsNotPermittedInSecurityRule" Network, D "cloud-provider-azure#6775, data-safe-haven#2077",
        "Security rule parameter {side}AddressPrefix for rule with Id {id} contains overlapping subnets [{one}, {other}], which is not permitted.";
    route_table_in_use(id, by): 400 "InUseRouteTableCannotBeDeleted" Network, D "code, unverified text",
        "Route table {id} is in use and cannot be deleted. It is used by {by}.";
    too_many_routes(id, most): 400 "RouteCountLimitReached" Network, U "the limit is documented",
        "Route table {id} cannot have more than {most} routes.";
    invalid_route_prefix(id, given): 400 "InvalidAddressPrefixFormat" Network, U "",
        "Route {id} has invalid address prefix {given}.";
    invalid_next_hop(id, hop): 400 "InvalidNextHopIpAddress" Network, U "that a virtual appliance alone has an address is documented",
        "Route {id} of next hop type {hop} must have a next hop IP address if the type is VirtualAppliance, and none otherwise.";
    routes_conflict(id, prefix): 400 "RouteConflict" Network, U "",
        "Route {id} has the address prefix {prefix} of another route of the table.";
    frontend_has_private_link(frontend, service): 400 "FrontendIPConfigurationInUseByPrivateLinkService" Network, U "that a frontend has one is documented",
        "Frontend IP configuration {frontend} is already used by private link service {service}.";
    private_link_service_in_use(id, by): 400 "PrivateLinkServiceHasPrivateEndpointConnections" Network, U "that connections go first is documented",
        "Private link service {id} cannot be deleted. It has private endpoint connection {by}.";
    private_link_service_needs_no_policies(id, subnet): 400 "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled" Network, U "the rule is documented",
        "Private link service {id} cannot be created in a subnet {subnet} since it has private link service network policies enabled.";
    private_link_service_needs_standard(id, balancer): 400 "PrivateLinkServiceNeedsStandardLoadBalancer" Network, U "the rule is documented",
        "Private link service {id} cannot use load balancer {balancer}, which is not of the Standard sku.";
    private_link_service_needs_interfaces(id, balancer): 400 "PrivateLinkServiceNotSupportedForIpBasedLoadBalancer" Network, U "the rule is documented (backend-pool-management)",
        "Private link service {id} cannot use load balancer {balancer}, whose backend address pools have addresses rather than network interfaces.";
    policies_of_private_link_subnet(subnet): 400 "PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet" Network, D "code, unverified text",
        "Private link service network policies cannot be enabled on subnet {subnet}, which has private link services.";

    private_endpoint_group_invalid(id, allowed): 400 "PrivateEndpointInvalidGroupId" Network, U "that an account has these parts is documented",
        "Private endpoint {id} must name one part of the storage account in groupIds: {allowed}.";
    endpoint_has_zone_group(endpoint, group): 400 "MultiplePrivateDnsZoneGroupsPerPrivateEndpointNotAllowed" Network, U "that an endpoint has one is documented (private-endpoint-dns)",
        "Private endpoint {endpoint} already has the private DNS zone group {group}.";
    private_dns_exists(id): 412 "PreconditionFailed" Provider, U "that If-None-Match keeps what exists is documented",
        "The condition '*' in the If-None-Match header was not satisfied. The resource {id} exists already.";
    nested_resources_exist(link): 409 "CannotDeleteResource" Provider, D "public trackers",
        "Can not delete resource before nested resources are deleted. Existing nested resource: {link}.";
    network_is_linked(network, zone, link): 409 "Conflict" Provider, U "that a network has one link to a zone is documented",
        "The virtual network {network} is already linked to the private DNS zone {zone} by the link {link}.";
    zones_overlap(one, other): 400 "BadRequest" Provider, D "public trackers",
        "A virtual network cannot be linked to multiple zones with overlapping namespaces. You tried to link virtual network with '{one}' and '{other}' zones.";

    // ---- The storage provider, and the file service, which says how it is told further ----

    account_name_invalid(name): 400 "AccountNameInvalid" Provider, D "pulumi/templates#274, azure-docs#48724",
        "{name} is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and use numbers and lower-case letters only.";
    acl_subnet_without_endpoint(subnet, network): 400 "NetworkAclsValidationFailure" Provider, D "terraform-provider-azurerm#16547, azure-cli#32434",
        "Validation of network acls failure: SubnetsHaveNoServiceEndpointsConfigured:Subnets {subnet} of virtual network {network} do not have ServiceEndpoints for Microsoft.Storage resources configured. Add Microsoft.Storage to subnet's ServiceEndpoints collection before trying to ACL Microsoft.Storage resources to these subnets..";
    acl_subnet_not_provisioned(subnet, network, state): 400 "NetworkAclsValidationFailure" Provider, D "public trackers",
        "Validation of network acls failure: SubnetsNotProvisioned:Cannot proceed with operation because subnets {subnet} of the virtual network {network} are not provisioned. They are in {state} state..";
    acl_subnet_missing(subnet, network): 400 "NetworkAclsValidationFailure" Provider, U "that it must exist is documented",
        "Validation of network acls failure: the virtual network {network} has no subnet {subnet}.";
    account_taken(name): 409 "StorageAccountAlreadyTaken" Provider, D "public trackers",
        "The storage account named {name} is already taken.";
    account_exists(name): 409 "StorageAccountAlreadyExists" Provider, D "public trackers",
        "The storage account named {name} already exists under the subscription.";
    account_not_provisioned(): 409 "StorageAccountIsNotProvisioned" Provider, D "azurefile-csi-driver#186",
        "The storage account provisioning state must be 'Succeeded' before executing the operation.";
    account_busy(): 409 "StorageAccountOperationInProgress" Provider, D "openshift-azure#1332, ARO-RP#1197",
        "An operation is currently performing on this storage account that requires exclusive access.";
    account_parameters_invalid(names): 400 "InvalidValuesForRequestParameters" Provider, D "terraform-provider-azurerm#8089",
        "Values for request parameters are invalid: {names}.";
    account_property_invalid(property): 400 "AccountPropertyIsInvalid" Provider, D "kubernetes#65845: a creation without a kind; other properties are unverified",
        "Account property {property} is invalid for the request.";
    account_property_fixed(property): 400 "AccountPropertyCannotBeUpdated" Provider, D "azure-cli#30522, ResourceModules#3106",
        "The property '{property}' was specified in the input, but it cannot be updated as it is read-only. For more information, see - https://aka.ms/storageaccountupdate";
    storage_value_not_allowed(value, property): 400 "InvalidRequestPropertyValue" Provider, D "ResourceModules#535, azure-cli#25748, which name a page after it",
        "The value '{value}' is not allowed for property {property}.";
    too_many_accounts(limit, location, used): 400 "MaxStorageAccountsCountPerSubscriptionExceeded" Provider, D "azure-sdk-for-cpp#3959, its code and beginning",
        "The subscription already contains {used} storage accounts in location {location} and the maximum allowed is {limit}.";
    storage_parent_not_found(action, kind, parent): 404 "ParentResourceNotFound" Gateway, R "",
        "Failed to perform '{action}' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found.";
    storage_throttled(kind): 429 "TooManyRequests" Provider, D "azurefile-csi-driver#432",
        "The request is being throttled as the limit has been reached for operation type - {kind}. For more information, see - https://aka.ms/srpthrottlinglimits";
    service_unsupported(service): 409 "FeatureNotSupportedForAccount" Provider, D "public trackers; of NFS and multichannel it is unverified",
        "{service} is not supported for the account.";
    share_not_found(): 404 "ShareNotFound" Provider, R "",
        "The specified share does not exist.";
    share_snapshot_not_found(): 404 "ShareSnapshotNotFound" Provider, D "file-service-error-codes",
        "The specified share snapshot does not exist.";
    share_exists(): 409 "ShareAlreadyExists" Provider, D "file-service-error-codes",
        "The specified share already exists.";
    share_being_deleted(): 409 "ShareBeingDeleted" Provider, D "file-service-error-codes",
        "The specified share is being deleted. Try operation later.";
    share_has_snapshots(): 409 "ShareHasSnapshots" Provider, D "azure-storage-php#303",
        "The share has snapshots and the operation requires no snapshots.";
    too_many_share_snapshots(): 409 "ShareSnapshotCountExceeded" Provider, D "file-service-error-codes, code and limit",
        "The total number of snapshots for the share is over the limit.";
    share_leased(): 412 "LeaseIdMissing" Provider, D "lease-share",
        "There is currently a lease on the share and no lease ID was specified in the request.";
    lease_present(): 409 "LeaseAlreadyPresent" Provider, D "lease-share",
        "There is already a lease present.";
    lease_absent(): 409 "LeaseNotPresentWithLeaseOperation" Provider, D "lease-share",
        "There is currently no lease on the share.";
    lease_of_another(): 409 "LeaseIdMismatchWithLeaseOperation" Provider, D "lease-share",
        "The lease ID specified did not match the lease ID for the share.";
    lease_not_acquired(): 409 "LeaseIsBreakingAndCannotBeAcquired" Provider, D "lease-share",
        "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken.";
    lease_not_changed(): 409 "LeaseIsBreakingAndCannotBeChanged" Provider, D "lease-share",
        "The lease ID matched, but the lease is currently in breaking state and cannot be changed.";
    lease_broken(): 409 "LeaseIsBrokenAndCannotBeRenewed" Provider, D "lease-share",
        "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.";
    share_name_invalid(): 400 "InvalidResourceName" Provider, D "azurefile-csi-driver#600",
        "The specifed resource name contains invalid characters.";
    share_name_length(): 400 "OutOfRangeInput" Provider, D "common-rest-api-error-codes",
        "The specified resource name length is not within the permissible limits.";
    share_header_invalid(): 400 "InvalidHeaderValue" Provider, D "azure-cli#18405, azure-powershell#25667, terraform-provider-azurerm#14737",
        "The value for one of the HTTP headers is not in the correct format.";
    share_query_invalid(): 400 "InvalidQueryParameterValue" Provider, D "common-rest-api-error-codes",
        "Value for one of the query parameters specified in the request URI is invalid.";
    share_node_invalid(): 400 "InvalidXmlNodeValue" Provider, D "common-rest-api-error-codes",
        "The value for one of the XML nodes is not in the correct format.";
    too_many_shares(): 409 "TotalSharesCountExceedsAccountLimit" Provider, D "file-service-error-codes; the status is unverified",
        "The total number of shares for the storage account exceeds the limit.";
    shares_too_large(): 409 "TotalSharesProvisionedCapacityExceedsAccountLimit" Provider, D "azurefile-csi-driver#3132; the text is unverified",
        "The total provisioned capacity of the shares exceeds the account maximum size limit.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_an_error_with_a_code_and_evidence() {
        for (status, code, evidence) in ROWS {
            assert!((400..600).contains(status), "{code}: {status}");
            assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{code}");
            assert!(["R", "D", "U"].contains(evidence), "{code}: {evidence}");
        }
    }

    #[test]
    fn placeholders_are_filled_and_braces_of_a_text_stay() {
        let fault = invalid_domain_name_label("Up");
        assert_eq!(
            fault.message,
            "The domain name label Up is invalid. It must conform to the following regular expression: ^[a-z][a-z0-9-]{1,61}[a-z0-9]$."
        );
        assert_eq!(fault.object()["details"], json!([]));
        assert_eq!(missing_value("a").object()["details"][0]["message"], "Value for a is missing.");
    }
}
