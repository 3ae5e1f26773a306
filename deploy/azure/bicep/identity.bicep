// One identity of the resource group with its federated credential, and the assignments of its roles. main.bicep uses it.

@description('The name of the identity.')
param name string

@description('The region of the identity.')
param location string

@description('The object id of an identity that is there already. Empty: one is made.')
param principalId string

@description('The roles to assign at the scope of the resource group.')
param roleDefinitionIds string[]

@description('The issuer of the cluster\'s tokens. Empty: no workload identity.')
param issuer string

@description('The audience of the tokens.')
param audience string

@description('Whose tokens are exchanged: system:serviceaccount:NAMESPACE:NAME.')
param subject string

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = if (empty(principalId)) {
  name: name
  location: location
}

resource credential 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = if (empty(principalId) && !empty(issuer)) {
  parent: identity
  name: name
  properties: {
    issuer: issuer
    subject: subject
    audiences: [audience]
  }
}

resource assignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for roleDefinitionId in roleDefinitionIds: {
    name: guid(resourceGroup().id, name, principalId, roleDefinitionId)
    properties: {
      roleDefinitionId: roleDefinitionId
      principalId: empty(principalId) ? identity!.properties.principalId : principalId
      // Microsoft Entra ID may not know a new identity yet.
      principalType: 'ServicePrincipal'
    }
  }
]

@description('The client id of the identity that was made. Empty: none was.')
output clientId string = empty(principalId) ? identity!.properties.clientId : ''
