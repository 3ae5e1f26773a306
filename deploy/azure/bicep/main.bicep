// The roles of ../role*.json, identities, and the assignments at the resource group's scope. ../README.md says which roles are needed for
// what, and has the same as az commands.
targetScope = 'subscription'

@description('The resource group of the machines; on AKS the node resource group, MC_... Roles are assigned at its scope.')
param resourceGroupName string

@description('The region of new identities and of the deployment.')
param location string = deployment().location

@description('The issuer of the cluster\'s tokens, the --service-account-issuer of its API server. Empty: no workload identity.')
param issuer string = ''

@description('The audience of the tokens, the chart\'s azure.workloadIdentity.audience.')
param audience string = 'api://AzureADTokenExchange'

@description('The namespace of the release.')
param namespace string = 'kube-system'

@description('The identities, each with its roles. serviceAccount is who signs in by workload identity. principalId is the object id of an identity that is there already, such as the one of the machines: then none is made, and serviceAccount does not count.')
param identities identityType[] = [
  { name: 'lazuli', roles: ['disks'] }
]

type identityType = {
  name: string
  roles: ('disks' | 'whole-list' | 'blob-disks' | 'files' | 'files-network' | 'cloud-controllers' | 'scale-set-pools' | 'add-ssh-key')[]
  serviceAccount: string?
  principalId: string?
}

// What the role files have in place of the subscription.
var placeholder = '00000000-0000-0000-0000-000000000001'

var roleFiles = {
  disks: loadJsonContent('../role.json')
  'whole-list': loadJsonContent('../role-whole-list.json')
  'blob-disks': loadJsonContent('../role-blob-disks.json')
  files: loadJsonContent('../role-files.json')
  'files-network': loadJsonContent('../role-files-network.json')
  'cloud-controllers': loadJsonContent('../role-cloud-controllers.json')
  'scale-set-pools': loadJsonContent('../role-scale-set-pools.json')
  'add-ssh-key': loadJsonContent('../role-add-ssh-key.json')
}

// The roles that an identity has.
var roles = union(flatten(map(identities, one => one.roles)), [])

resource roleDefinitions 'Microsoft.Authorization/roleDefinitions@2022-04-01' = [
  for role in roles: {
    name: guid(subscription().id, roleFiles[role].Name)
    properties: {
      roleName: roleFiles[role].Name
      description: roleFiles[role].Description
      type: 'CustomRole'
      permissions: [
        {
          actions: roleFiles[role].Actions
          notActions: roleFiles[role].NotActions
          dataActions: roleFiles[role].DataActions
          notDataActions: roleFiles[role].NotDataActions
        }
      ]
      assignableScopes: map(
        roleFiles[role].AssignableScopes,
        scope => replace(scope, placeholder, subscription().subscriptionId)
      )
    }
  }
]

module identity 'identity.bicep' = [
  for one in identities: {
    name: 'lazuli-identity-${one.name}'
    scope: resourceGroup(resourceGroupName)
    params: {
      name: one.name
      location: location
      principalId: one.?principalId ?? ''
      roleDefinitionIds: map(
        one.roles,
        role =>
          subscriptionResourceId(
            'Microsoft.Authorization/roleDefinitions',
            guid(subscription().id, roleFiles[role].Name)
          )
      )
      issuer: issuer
      audience: audience
      subject: 'system:serviceaccount:${namespace}:${one.?serviceAccount ?? 'lazuli-controller'}'
    }
    dependsOn: [roleDefinitions]
  }
]

@description('The client ids of the identities that were made, and empty texts for the others: the chart\'s azure.workloadIdentity.clientId, or userAssignedIdentityID of azure.json.')
output clientIds array = [for (one, index) in identities: { name: one.name, clientId: identity[index].outputs.clientId }]
