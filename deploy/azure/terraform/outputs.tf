output "client_ids" {
  description = "The client ids of the identities that were made: the chart's azure.workloadIdentity.clientId, or userAssignedIdentityID of azure.json."
  value       = { for name, identity in azurerm_user_assigned_identity.lazuli : name => identity.client_id }
}

output "identity_ids" {
  description = "Their resource ids, to give to the machines on which the controller runs without workload identity."
  value       = { for name, identity in azurerm_user_assigned_identity.lazuli : name => identity.id }
}
