//! The catalogue of the network provider.

use serde_json::json;

use super::Fault;

/// Recorded.
pub(crate) fn network_etag_mismatch(given: &str, actual: &str, id: &str) -> Fault {
    let given = if given.starts_with("W/") { given.to_owned() } else { format!("W/\"{}\"", given.trim_matches('"')) };
    let mut fault = Fault::new(412, "PreconditionFailed", "Precondition failed.");
    fault.details = vec![json!({
        "code": "PreconditionFailedEtagMismatch",
        "message": format!(
            "Etag provided in if-match header {given} does not match etag {actual} of resource {id} in NRP data store."
        ),
    })];
    fault
}

/// Unverified text; the code is the provider's for a body that lacks something.
pub(crate) fn missing_value(what: &str) -> Fault {
    let mut fault = Fault::new(400, "InvalidRequestFormat", "Cannot parse the request.");
    fault.details = vec![json!({
        "code": "MissingJsonReferenceId",
        "message": format!("Value for {what} is missing."),
    })];
    fault
}

/// Documented: a real body with `PutLoadBalancerOperation`.
pub(crate) fn superseded(operation: &str) -> Fault {
    let mut fault = Fault::new(409, "Canceled", "Operation was canceled.");
    fault.details = vec![json!({
        "code": "CanceledAndSupersededDueToAnotherOperation",
        "message": format!("Operation {operation} was canceled and superseded by operation {operation}."),
    })];
    fault
}

/// Recorded.
pub(crate) fn network_child_not_found(id: &str) -> Fault {
    let mut fault = Fault::new(404, "NotFound", format!("Resource {id} not found."));
    fault.empty_details = true;
    fault
}

/// Documented (Azure/bicep#5132); the status is unverified.
pub(crate) fn another_operation(url: &str) -> Fault {
    let mut fault = Fault::new(
        409,
        "AnotherOperationInProgress",
        format!(
            "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: {url}."
        ),
    );
    fault.empty_details = true;
    fault
}

/// Documented text (azure-sdk-for-php#977), unverified code.
pub(crate) fn invalid_expansion(property: &str) -> Fault {
    network_fault(
        "InvalidExpandQueryOptionValue",
        format!(
            "$expand query option value is invalid. The resource does not have property {property} or the property does not represent a reference to another resource."
        ),
    )
}

/// Documented: a real body (hashicorp/terraform#7986).
pub(crate) fn not_provisioned(id: &str, by: &str, state: &str, operation: &str) -> Fault {
    let mut fault = Fault::new(429, "RetryableError", "A retryable error occurred.");
    fault.details = vec![json!({
        "code": "ReferencedResourceNotProvisioned",
        "message": format!(
            "Cannot proceed with operation because resource {id} used by resource {by} is not in Succeeded state. Resource is in {state} state and the last operation that updated/is updating the resource is {operation}."
        ),
    })];
    fault
}

/// Documented (terraform#10826, MicrosoftDocs/azure-docs PR#123869).
pub(crate) fn subnet_outside(name: &str, network: &str) -> Fault {
    network_fault(
        "NetcfgSubnetRangeOutsideVnet",
        format!(
            "Subnet '{name}' is not valid because its IP address range is outside the IP address range of virtual network '{network}'."
        ),
    )
}

/// Documented (MicrosoftDocs/azure-docs PR#123869).
pub(crate) fn subnets_overlap(name: &str, network: &str) -> Fault {
    network_fault(
        "NetcfgSubnetRangesOverlap",
        format!(
            "Subnet '{name}' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '{network}'."
        ),
    )
}

/// Documented.
pub(crate) fn invalid_reference(id: &str, by: &str) -> Fault {
    let mut fault = Fault::new(
        400,
        "InvalidResourceReference",
        format!(
            "Resource {id} referenced by resource {by} was not found. Please make sure that the referenced resource exists, and that both resources are in the same region."
        ),
    );
    fault.empty_details = true;
    fault
}

fn network_fault(code: &str, message: String) -> Fault {
    let mut fault = Fault::new(400, code, message);
    fault.empty_details = true;
    fault
}

/// Documented (azure-docs#88211).
pub(crate) fn subnet_full(name: &str, prefix: &str) -> Fault {
    network_fault(
        "SubnetIsFull",
        format!("Subnet {name} with address prefix {prefix} does not have enough capacity for 1 IP addresses."),
    )
}

/// Documented code, unverified text.
pub(crate) fn address_not_in_subnet(address: &str, prefix: &str) -> Fault {
    network_fault(
        "PrivateIPAddressNotInSubnet",
        format!("Private static IP address {address} does not belong to the range of subnet prefix {prefix}."),
    )
}

/// Documented (acs-engine#1867): the configuration's id, and the id of the interface that has the address.
pub(crate) fn address_allocated(configuration: &str, address: &str, by: &str) -> Fault {
    network_fault(
        "PrivateIPAddressIsAllocated",
        format!(
            "IP configuration {configuration} is using the private IP address {address} which is already allocated to resource {by}."
        ),
    )
}

/// Documented.
pub(crate) fn subnet_in_use(name: &str, by: &str) -> Fault {
    let mut fault = Fault::new(
        400,
        "InUseSubnetCannotBeDeleted",
        format!(
            "Subnet {name} is in use by {by} and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet."
        ),
    );
    fault.empty_details = true;
    fault
}

/// Documented.
pub(crate) fn nic_in_use(nic: &str, vm: &str) -> Fault {
    let mut fault = Fault::new(
        400,
        "NicInUse",
        format!(
            "Network Interface {nic} is used by existing resource {vm}. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic."
        ),
    );
    fault.empty_details = true;
    fault
}
