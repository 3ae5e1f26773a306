# Which roles are made, and who gets them where. The actions are those of the role files, and of nothing else.

locals {
  # What the role files have in place of the subscription.
  placeholder = "00000000-0000-0000-0000-000000000001"

  role_files = {
    disks             = jsondecode(file("${path.module}/../role.json"))
    whole-list        = jsondecode(file("${path.module}/../role-whole-list.json"))
    blob-disks        = jsondecode(file("${path.module}/../role-blob-disks.json"))
    files             = jsondecode(file("${path.module}/../role-files.json"))
    files-network     = jsondecode(file("${path.module}/../role-files-network.json"))
    cloud-controllers = jsondecode(file("${path.module}/../role-cloud-controllers.json"))
    scale-set-pools   = jsondecode(file("${path.module}/../role-scale-set-pools.json"))
    add-ssh-key       = jsondecode(file("${path.module}/../role-add-ssh-key.json"))
  }

  # The roles that an identity has.
  roles = {
    for role in distinct(flatten([for identity in values(var.identities) : tolist(identity.roles)])) : role => {
      name             = local.role_files[role].Name
      description      = local.role_files[role].Description
      actions          = local.role_files[role].Actions
      not_actions      = local.role_files[role].NotActions
      data_actions     = local.role_files[role].DataActions
      not_data_actions = local.role_files[role].NotDataActions
      assignable_scopes = [
        for scope in local.role_files[role].AssignableScopes : replace(scope, local.placeholder, var.subscription_id)
      ]
    }
  }

  # The identities that are made, and those of them that sign in by a token of the cluster.
  made      = { for name, identity in var.identities : name => identity if identity.existing == null }
  federated = var.issuer == null ? {} : local.made

  # By name: an id may be unknown before the first apply.
  scopes = merge(var.scopes, { cluster = "/subscriptions/${var.subscription_id}/resourceGroups/${var.resource_group}" })

  # One assignment for each identity, role and scope.
  assignments = {
    for one in flatten([
      for name, identity in var.identities : [
        for role in identity.roles : [
          for at, scope in local.scopes : { identity = name, role = role, at = at, scope = scope }
        ]
      ]
    ]) : "${one.identity} ${one.role} ${one.at}" => one
  }
}
