"""The legitimate ways in which one ARM differs from another.

A dialect is a value: what a client may meet, never a fault (faults are ordered per test, see `wire.Fault`).
Each position of a switch is marked:

- recorded: seen in real ARM traffic, published by kubernetes-sigs/cloud-provider-azure or quoted in a public issue;
- documented: in Microsoft's pages ("Track asynchronous Azure operations", "Compute throttling limits"), in the
  swagger, in ARM's contract for resource providers (Azure/azure-resource-manager-rpc, below "RPC") or an RFC;
- unverified: no source says so, and none forbids it.
"""

from dataclasses import dataclass, replace

# How a write that takes time is announced.
BOTH = "202, Azure-AsyncOperation and Location"  # recorded: disks
BY_LOCATION = "202, Location only"  # documented: RPC, "202 Accepted and Location Headers"
ASYNC = "200 or 201, Azure-AsyncOperation only"  # recorded: virtual machines; for DELETE and POST (202) unverified
RESOURCE = "200 or 201, provisioningState only"  # recorded: a VM PUT without change; documented: RPC, "Creating"
SYNC = "done at once"  # documented: the swagger's 200 of every write

WHERE_THE_ACTION_IS_MISSING = {
    # documented: what ARM says of a path it cannot route for this api-version
    "404": (404, "InvalidResourceType", "The resource type could not be found in the namespace 'Microsoft.Compute'."),
    # unverified: a provider that knows the path with other verbs
    "405": (405, "MethodNotAllowed", "The requested resource does not support http method 'POST'."),
    # recorded (code and wording): an older region or stamp
    "400": (
        400,
        "NoRegisteredProviderFound",
        "No registered resource provider found for location 'westeurope' and API version '2025-04-01' for type "
        "'virtualMachines'. The supported api-versions are '2017-12-01,2020-06-01'.",
    ),
    # documented: a role from before the action existed
    "403": (
        403,
        "AuthorizationFailed",
        "The client does not have authorization to perform action "
        "'Microsoft.Compute/virtualMachines/attachDetachDataDisks/action' over scope.",
    ),
}


@dataclass(frozen=True)
class Dialect:
    """One combination of switches. The defaults are the public cloud as far as it is recorded."""

    name: str

    # --- long operations
    disk_write: str = BOTH
    disk_delete: str = BOTH
    vm_write: str = ASYNC
    action: str = BOTH
    # recorded: the network provider, every type but interfaces; interfaces are written at once.
    network_write: str = ASYNC
    network_delete: str = BOTH
    interface_write: str = SYNC
    # recorded: a load balancer says Succeeded in the answer to its PUT, which announces an operation all the same.
    balancer_at_once: bool = True
    # Seconds from acceptance to the end.
    duration: float = 0.5
    # None (recorded: kubernetes#35180), "0" (unverified), "1" (documented: seconds), "date" (documented: RFC 9110;
    # RPC forbids it to providers, but gateways in front of them exist).
    retry_after: str | None = "1"
    # "absolute" (documented: RPC) or "relative" (recorded: the deletion of a resource group).
    operation_urls: str = "absolute"
    # documented: every word but the three terminal ones means running.
    running: str = "InProgress"
    # documented: Succeeded, Failed, Canceled; another letter case is unverified.
    succeeded: str = "Succeeded"
    # documented: 200; unverified: 202 while running, as some providers answer.
    running_status: int = 200
    # documented: the operation may carry id, percentComplete, operations; CRP's disks carry properties.output.
    rich_operations: bool = False
    # "true" (recorded), "absent" (documented: RPC calls them optional), "zero": a start that was never set, as .NET
    # writes it (unverified for compute).
    operation_times: str = "true"
    # documented: RPC, "each 202 carries a Location again"; here it leads elsewhere each time.
    moving_location: bool = False
    # documented: a finished deletion answers its Location with 200 or 204.
    deleted_location: int = 204

    # --- reads
    # documented: RPC, rule 7 of 202: what was accepted is not visible before the end.
    invisible_while_creating: bool = False
    # documented: RPC, "properties should reflect the update in progress".
    shows_update_in_progress: bool = True
    # Seconds by which reads and lists of disks trail writes. unverified in length; the Go driver waits for the owner
    # of a disk to vanish after a detach, so it happens.
    read_lag: float = 0.0
    list_lag: float = 0.0
    # documented: nextLink; an empty page in the middle is allowed by it. None: everything on one page.
    page_size: int | None = None
    # How an absent owner is written: "absent" (recorded), "null", "empty" (unverified).
    no_owner: str = "absent"
    # documented: a client must take enumerations as open (`modelAsString` in the swagger).
    disk_states: tuple[tuple[str, str], ...] = ()
    # What a VM without data disks shows: [] (recorded), null or nothing (unverified).
    no_data_disks: str = "[]"
    # "quoted" (recorded: growing numbers), "weak" (recorded: network), "header" (not in the body; unverified),
    # "absent" (documented: the API versions of Azure Stack Hub have none).
    etag: str = "quoted"

    # The network provider's etags: "header and body" (recorded), "body" (unverified; so lists show them).
    network_etag: str = "header and body"

    # --- spelling
    # recorded: CRP returns group names in capitals in some ids; other ids come in lower case. One of "as-is",
    # "upper-group", "lower", "lower-segment", and "mixed": another one in every answer.
    casing: str = "as-is"
    # Are `id`s respelled as well, or only what refers to another resource?
    respell_ids: bool = False
    # "compact" or "indented" with CRLF (both recorded), "reversed": properties in another order (documented: RFC
    # 8259 gives none).
    json_style: str = "compact"
    # documented: clients ignore properties that they do not know, and must not drop them in an update.
    new_properties: bool = False
    bom: bool = False  # unverified for ARM; RFC 8259 lets parsers ignore it
    chunked: bool = False  # recorded: azure-cli#7671
    gzip: bool = False  # recorded: azure-cli#7671, where Accept-Encoding asks for it
    content_type: str | None = "application/json; charset=utf-8"  # recorded
    # Bodies of errors: "nested" (documented), "rich" (details and innererror; documented), "flat" (documented:
    # compute throttling), "empty" (unverified; only where the status says all that a client needs).
    errors: str = "nested"
    # The code for a resource that is not there: "ResourceNotFound" (recorded: the gateway) or "NotFound" (recorded:
    # what the network provider says itself; unverified for compute).
    not_found: str = "ResourceNotFound"

    # --- abilities
    # One of `WHERE_THE_ACTION_IS_MISSING`, or None where attachDetachDataDisks is there (documented: 2024-03-01).
    action_missing: str | None = None
    # documented: the API profile 2020-09-01-hybrid of Azure Stack Hub.
    stack: bool = False
    # An absent disk is deleted with 204 (documented: the swagger) or 404 (unverified).
    delete_absent: int = 204
    # unverified: what detaching a disk that is not attached gives; the code is recorded, its status is not.
    detach_absent: str = "ignored"
    # Seconds before every answer.
    slow: float = 0.0
    # documented: RFC 9112 lets a server close an idle connection at any time.
    closes_connections: bool = False

    # --- signing in, and how the client is told of this cloud
    # documented: RFC 6749, token types in any case and members that a client does not know.
    rich_tokens: bool = False
    # Azure's answer to /metadata/endpoints: "object" (documented: api-version 1.0) or "array" (2019-05-01 and later).
    endpoints: str = "object"
    # "discovered": resourceManagerEndpoint alone; "stack": with cloud AzureStackCloud; "file": the endpoint file
    # of AZURE_ENVIRONMENT_FILEPATH.
    configured: str = "discovered"

    def but(self, name: str, **changes) -> "Dialect":
        return replace(self, name=name, **changes)


PUBLIC = Dialect("the public cloud as recorded")

STACK = Dialect(
    "Azure Stack Hub",
    stack=True,
    configured="stack",
    action_missing="404",
    etag="absent",
    disk_write=ASYNC,
    vm_write=ASYNC,
    retry_after=None,
)

DIALECTS = [
    PUBLIC,
    PUBLIC.but(
        "only Location",
        network_write=BY_LOCATION,
        network_delete=BY_LOCATION,
        interface_write=BY_LOCATION,
        disk_write=BY_LOCATION,
        disk_delete=BY_LOCATION,
        vm_write=BY_LOCATION,
        action=BY_LOCATION,
    ),
    PUBLIC.but(
        "only Location, moving and invisible until the end",
        network_write=BY_LOCATION,
        network_delete=BY_LOCATION,
        balancer_at_once=False,
        disk_write=BY_LOCATION,
        disk_delete=BY_LOCATION,
        vm_write=BY_LOCATION,
        action=BY_LOCATION,
        moving_location=True,
        invisible_while_creating=True,
        deleted_location=200,
    ),
    PUBLIC.but(
        "only Azure-AsyncOperation",
        network_delete=ASYNC,
        interface_write=ASYNC,
        balancer_at_once=False,
        disk_write=ASYNC,
        disk_delete=ASYNC,
        vm_write=ASYNC,
        action=ASYNC,
        running="Creating",
    ),
    PUBLIC.but(
        "no operation at all, only a provisioning state",
        network_write=RESOURCE,
        network_delete=BY_LOCATION,
        interface_write=RESOURCE,
        balancer_at_once=False,
        disk_write=RESOURCE,
        disk_delete=BY_LOCATION,
        vm_write=RESOURCE,
        action_missing="404",
        running="Updating",
    ),
    PUBLIC.but(
        "everything at once",
        network_write=SYNC,
        network_delete=SYNC,
        disk_write=SYNC,
        disk_delete=SYNC,
        vm_write=SYNC,
        action=SYNC,
        retry_after=None,
    ),
    PUBLIC.but(
        "polling without advice", retry_after=None, rich_operations=True, running="Running", operation_times="absent"
    ),
    PUBLIC.but("polling at once", retry_after="0", running_status=202),
    PUBLIC.but("advice as a date", retry_after="date", running="Accepted"),
    PUBLIC.but("relative operations in small letters", operation_urls="relative", succeeded="succeeded"),
    PUBLIC.but("operations that began at the beginning of time", operation_times="zero", retry_after="0"),
    PUBLIC.but("capital groups", casing="upper-group", respell_ids=True),
    PUBLIC.but("references in small letters", casing="lower", no_owner="null"),
    PUBLIC.but("spelling that changes from answer to answer", casing="mixed", respell_ids=True, action_missing="403"),
    PUBLIC.but(
        "a future cloud",
        new_properties=True,
        json_style="reversed",
        rich_operations=True,
        disk_states=(("Unattached", "Resting"), ("Attached", "InService")),
    ),
    PUBLIC.but(
        "a future cloud without the action",
        new_properties=True,
        json_style="indented",
        action_missing="405",
        etag="weak",
        casing="lower-segment",
    ),
    PUBLIC.but(
        "an older region",
        action_missing="400",
        etag="header",
        no_data_disks="null",
        not_found="NotFound",
        network_etag="body",
        errors="rich",
        delete_absent=404,
    ),
    PUBLIC.but(
        "a list without data disks and no etag",
        action_missing="404",
        etag="absent",
        no_data_disks="absent",
        no_owner="empty",
        detach_absent="refused",
    ),
    PUBLIC.but("pages with a hole", page_size=2, list_lag=0.3),
    PUBLIC.but("reads that trail writes", read_lag=0.7, list_lag=1.2, shows_update_in_progress=False),
    PUBLIC.but("small packets", chunked=True, gzip=True, json_style="indented", closes_connections=True),
    PUBLIC.but("odd texts", content_type="text/json", errors="flat", rich_tokens=True, endpoints="array"),
    PUBLIC.but("a byte order mark", bom=True, configured="file"),
    PUBLIC.but("silent errors", errors="empty", content_type=None, retry_after=None, duration=0.2),
    PUBLIC.but("a slow cloud", slow=0.15, duration=1.5, detach_absent="refused"),
    PUBLIC.but("endpoints from a file", configured="file"),
    STACK,
    STACK.but(
        "Azure Stack Hub without operations",
        disk_write=SYNC,
        disk_delete=SYNC,
        vm_write=RESOURCE,
        no_data_disks="null",
        configured="file",
    ),
]
