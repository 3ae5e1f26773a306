{{/* Flags of one sidecar each. The context is its values. */}}
{{- define "lazuli.provisionerArgs" -}}
- --worker-threads={{ int .workers }}
# For the templates of diskName and tags, and for the tags that name the claim.
- --extra-create-metadata
- --strict-topology
# The driver has neither snapshots nor VolumeAttributesClass: no rights for them are needed.
- --snapshot-orphan-sweep-interval=0
- --feature-gates=VolumeAttributesClass=false
- --kube-api-qps=50
- --kube-api-burst=100
{{- end }}
{{- define "lazuli.attacherArgs" -}}
- --worker-threads={{ int .workers }}
- --kube-api-qps=200
- --kube-api-burst=400
{{- end }}
{{- define "lazuli.resizerArgs" -}}
- --workers={{ int .workers }}
# The driver says itself which volumes grow only while they are detached.
- --handle-volume-inuse-error=false
- --feature-gates=VolumeAttributesClass=false
- --kube-api-qps=50
- --kube-api-burst=100
{{- end }}

{{/* What the environment tells of Azure: no secret is among it. */}}
{{- define "lazuli.azureEnv" -}}
{{- with .Values.azure.workloadIdentity }}
{{- if .clientId }}
- {name: AZURE_CLIENT_ID, value: {{ .clientId | quote }}}
{{- if .tenantId }}
- {name: AZURE_TENANT_ID, value: {{ .tenantId | quote }}}
{{- end }}
- {name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/token}
{{- end }}
{{- end }}
{{- if .Values.azure.endpoints.configMap }}
- {name: AZURE_ENVIRONMENT_FILEPATH, value: /etc/lazuli/endpoints/endpoints.json}
{{- end }}
{{- if .Values.certificateAuthorities.configMap }}
- {name: SSL_CERT_FILE, value: /etc/lazuli/ca/ca-certificates.crt}
{{- end }}
{{- with .Values.proxy }}
{{- if or .https .http }}
{{- with .https }}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
{{- end }}
{{- with .http }}
- {name: HTTP_PROXY, value: {{ . | quote }}}
{{- end }}
- name: NO_PROXY
  value: {{ concat (list "$(KUBERNETES_SERVICE_HOST)" "kubernetes.default.svc" "169.254.169.254") .except | join "," | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the processes of the controller's pod find the cloud configuration. */}}
{{- define "lazuli.cloudArgs" -}}
{{- if .Values.azure.config -}}
- --cloud-config=/etc/lazuli/config/azure.json
{{ end -}}
- --cloud-config-secret-name={{ .Values.azure.cloudConfigSecret.name }}
{{- if .Values.azure.cloudConfigSecret.name }}
- --cloud-config-secret-namespace={{ .Values.azure.cloudConfigSecret.namespace }}
{{- end }}
{{- $trusted := .Values.azure.trustedEndpoints }}
{{- with .Values.azure.config.resourceManagerEndpoint }}
{{- $trusted = append $trusted . }}
{{- end }}
{{- with $trusted }}
- --trusted-endpoint={{ join "," . }}
{{- end }}
{{- end }}

{{/* The files of the processes that speak to Azure. */}}
{{- define "lazuli.azureMounts" -}}
{{- if .Values.azure.config }}
- {name: azure-config, mountPath: /etc/lazuli/config, readOnly: true}
{{- end }}
{{- if .Values.azure.endpoints.configMap }}
- {name: azure-endpoints, mountPath: /etc/lazuli/endpoints, readOnly: true}
{{- end }}
{{- if .Values.azure.workloadIdentity.clientId }}
- {name: azure-token, mountPath: /var/run/secrets/azure, readOnly: true}
{{- end }}
{{- if .Values.azure.clientCertificateSecret }}
- {name: azure-client-certificate, mountPath: /etc/lazuli/client-certificate, readOnly: true}
{{- end }}
{{- if .Values.certificateAuthorities.configMap }}
- {name: certificate-authorities, mountPath: /etc/lazuli/ca, readOnly: true}
{{- end }}
{{- if .Values.metrics.certificateSecret }}
- {name: metrics-certificate, mountPath: /etc/lazuli/metrics, readOnly: true}
{{- end }}
{{- end }}
