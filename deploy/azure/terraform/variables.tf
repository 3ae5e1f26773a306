variable "subscription_id" {
  description = "The subscription of the cluster. Roles are defined in it."
  type        = string
  validation {
    condition     = can(regex("^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$", var.subscription_id))
    error_message = "subscription_id must be a GUID."
  }
}

variable "resource_group" {
  description = "The resource group of the machines; on AKS the node resource group, MC_... Roles are assigned at its scope."
  type        = string
}

variable "location" {
  description = "The region of new identities. Null: that of the resource group."
  type        = string
  default     = null
}

# What decides how many resources there are must be known before the first apply: the cluster that this module serves may be made
# by the same configuration. Ids and URLs may be unknown then, so they lie in maps and objects, whose keys are known.
variable "scopes" {
  description = "More scopes of the assignments, each under a name of its own: ids of resource groups that the cluster uses too, such as that of its network."
  type        = map(string)
  default     = {}
  validation {
    condition     = !contains(keys(var.scopes), "cluster")
    error_message = "scopes must not have the name cluster, which is that of the scope of resource_group."
  }
}

variable "issuer" {
  description = "The issuer of the cluster's tokens: url is the --service-account-issuer of its API server. Null: no workload identity."
  type        = object({ url = string })
  default     = null
}

variable "audience" {
  description = "The audience of the tokens, the chart's azure.workloadIdentity.audience."
  type        = string
  default     = "api://AzureADTokenExchange"
}

variable "namespace" {
  description = "The namespace of the release."
  type        = string
  default     = "kube-system"
}

variable "identities" {
  description = <<-TEXT
    The identities by name, each with its roles: disks, whole-list, blob-disks, files, files-network, cloud-controllers,
    scale-set-pools or add-ssh-key. service_account is who signs in by workload identity. existing is an identity that is there already, such as the
    one of the machines, by its object id principal_id: then none is made, and service_account does not count.
  TEXT
  type = map(object({
    roles           = set(string)
    service_account = optional(string, "lazuli-controller")
    existing        = optional(object({ principal_id = string }))
  }))
  default = {
    lazuli = { roles = ["disks"] }
  }
  validation {
    condition = alltrue([for identity in values(var.identities) : length(setsubtract(identity.roles, [
      "disks", "whole-list", "blob-disks", "files", "files-network", "cloud-controllers", "scale-set-pools", "add-ssh-key",
    ])) == 0])
    error_message = "roles are disks, whole-list, blob-disks, files, files-network, cloud-controllers, scale-set-pools and add-ssh-key."
  }
}
