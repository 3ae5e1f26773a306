# The roles of ../role*.json, identities, and the assignments at the resource group's scope. ../README.md says which roles are needed
# for what, and has the same as az commands.

data "azurerm_resource_group" "cluster" {
  name = var.resource_group
}

resource "azurerm_role_definition" "lazuli" {
  for_each = local.roles

  name        = each.value.name
  description = each.value.description
  scope       = "/subscriptions/${var.subscription_id}"
  permissions {
    actions          = each.value.actions
    not_actions      = each.value.not_actions
    data_actions     = each.value.data_actions
    not_data_actions = each.value.not_data_actions
  }
  assignable_scopes = each.value.assignable_scopes
}

resource "azurerm_user_assigned_identity" "lazuli" {
  for_each = local.made

  name                = each.key
  resource_group_name = var.resource_group
  location            = coalesce(var.location, data.azurerm_resource_group.cluster.location)
}

resource "azurerm_federated_identity_credential" "lazuli" {
  for_each = local.federated

  name                = each.key
  resource_group_name = var.resource_group
  parent_id           = azurerm_user_assigned_identity.lazuli[each.key].id
  issuer              = var.issuer.url
  subject             = "system:serviceaccount:${var.namespace}:${each.value.service_account}"
  audience            = [var.audience]
}

resource "azurerm_role_assignment" "lazuli" {
  for_each = local.assignments

  scope              = each.value.scope
  role_definition_id = azurerm_role_definition.lazuli[each.value.role].role_definition_resource_id
  principal_id = (
    var.identities[each.value.identity].existing != null
    ? var.identities[each.value.identity].existing.principal_id
    : azurerm_user_assigned_identity.lazuli[each.value.identity].principal_id
  )
  # Microsoft Entra ID may not know a new identity yet.
  principal_type = "ServicePrincipal"
}
