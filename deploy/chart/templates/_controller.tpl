{{/*
Arguments of one sidecar beside the sockets and the leader election: dict "root" . "sidecar" "provisioner" "driver" "disk" or
"file".
*/}}
{{- define "lazuli.sidecarArgs" -}}
{{- $values := index .root.Values.sidecars .sidecar -}}
- --timeout={{ $values.timeout }}
- {{ ternary "--workers" "--worker-threads" (eq .sidecar "resizer") }}={{ int $values.workers }}
{{- if eq .sidecar "provisioner" }}
# For the templates of diskName and tags, and for the tags that name the claim.
- --extra-create-metadata
{{- if eq .driver "disk" }}
- --strict-topology
{{- end }}
{{- if not (and (eq .driver "disk") (include "lazuli.snapshots" .root)) }}
# No claim is made from a snapshot: no rights for them are needed.
- --snapshot-orphan-sweep-interval=0
{{- end }}
{{- end }}
{{- if eq .sidecar "resizer" }}
# The driver says itself which volumes grow only while they are detached.
- --handle-volume-inuse-error=false
{{- if eq .driver "disk" }}
# For the templates of tags.
- --extra-modify-metadata
{{- end }}
{{- end }}
{{- if eq .sidecar "snapshotter" }}
# For the tags that name the VolumeSnapshot.
- --extra-create-metadata
{{- end }}
{{- $gates := dict }}
{{- if and (eq .driver "file") (ne .sidecar "attacher") }}
{{- $_ := set $gates "VolumeAttributesClass" .root.Values.azureFile.volumeAttributesClasses }}
{{- end }}
{{- if eq .sidecar "snapshotter" }}
{{- /* Its rights are not given, so that it would look for these classes in vain. */}}
{{- $_ := set $gates "CSIVolumeGroupSnapshot" false }}
{{- end }}
{{- $gates = merge $gates ($values.featureGates | default dict) }}
{{- $list := list }}
{{- range $gate := keys $gates | sortAlpha }}
{{- $list = append $list (printf "%s=%t" $gate (index $gates $gate)) }}
{{- end }}
{{- with $list }}
- --feature-gates={{ join "," . }}
{{- end }}
- --kube-api-qps={{ $values.kubeApiQps }}
- --kube-api-burst={{ int $values.kubeApiBurst }}
- --v={{ int (kindIs "invalid" $values.verbosity | ternary .root.Values.sidecars.verbosity $values.verbosity) }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The environment of a sidecar. The context is its values. */}}
{{- define "lazuli.sidecarEnv" -}}
env:
  - name: NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
What the environment says of Azure, without any secret, and the operator's variables: dict "root" . "identity" the workload
identity "extra" a list of variables.
*/}}
{{- define "lazuli.azureEnv" -}}
{{- $values := .root.Values }}
{{- with .identity }}
{{- if .clientId }}
- {name: AZURE_CLIENT_ID, value: {{ .clientId | quote }}}
{{- if .tenantId }}
- {name: AZURE_TENANT_ID, value: {{ .tenantId | quote }}}
{{- end }}
- {name: AZURE_FEDERATED_TOKEN_FILE, value: /var/run/secrets/azure/token}
{{- end }}
{{- end }}
{{- if $values.azure.endpoints.configMap }}
- {name: AZURE_ENVIRONMENT_FILEPATH, value: /etc/lazuli/endpoints/endpoints.json}
{{- end }}
{{- if $values.certificateAuthorities.configMap }}
- {name: SSL_CERT_FILE, value: /etc/lazuli/ca/ca-certificates.crt}
{{- end }}
{{- with $values.proxy }}
{{- if or .https .http }}
{{- with .https }}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
{{- end }}
{{- with .http }}
- {name: HTTP_PROXY, value: {{ . | quote }}}
{{- end }}
- name: NO_PROXY
  value: {{ concat (list "$(KUBERNETES_SERVICE_HOST)" "kubernetes.default.svc" "169.254.169.254") (.except | default list) | join "," | quote }}
{{- end }}
{{- end }}
{{- with .extra }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where a process finds the cloud configuration: dict "root" . "secret" the Secret's name and namespace. */}}
{{- define "lazuli.cloudArgs" -}}
{{- if or .root.Values.azure.config .root.Values.azure.hostFile -}}
- --cloud-config=/etc/lazuli/config/azure.json
{{ end -}}
- --cloud-config-secret-name={{ .secret.name }}
{{- if .secret.name }}
- --cloud-config-secret-namespace={{ .secret.namespace }}
{{- end }}
{{- $trusted := .root.Values.azure.trustedEndpoints | default list }}
{{- /* The program reads the keys of azure.json in any letter case. */}}
{{- range $key, $value := .root.Values.azure.config }}
{{- if and $value (eq (lower $key) "resourcemanagerendpoint") }}
{{- $trusted = append $trusted $value }}
{{- end }}
{{- end }}
{{- with $trusted }}
- {{ printf "--trusted-endpoint=%s" (join "," .) | quote }}
{{- end }}
{{- end }}

{{/*
The files of a process that speaks to Azure: dict "root" . "identity" the workload identity "certificate" the Secret with
its client certificate.
*/}}
{{- define "lazuli.azureMounts" -}}
{{- $values := .root.Values }}
{{- if $values.azure.config }}
- {name: azure-config, mountPath: /etc/lazuli/config, readOnly: true}
{{- end }}
{{- if $values.azure.hostFile }}
- {name: azure-config, mountPath: /etc/lazuli/config/azure.json, readOnly: true}
{{- end }}
{{- if $values.azure.endpoints.configMap }}
- {name: azure-endpoints, mountPath: /etc/lazuli/endpoints, readOnly: true}
{{- end }}
{{- if .identity.clientId }}
- {name: azure-token, mountPath: /var/run/secrets/azure, readOnly: true}
{{- end }}
{{- if .certificate }}
- {name: azure-client-certificate, mountPath: /etc/lazuli/client-certificate, readOnly: true}
{{- end }}
{{- if $values.certificateAuthorities.configMap }}
- {name: certificate-authorities, mountPath: /etc/lazuli/ca, readOnly: true}
{{- end }}
{{- if include "lazuli.metricsSecret" .root }}
- {name: metrics-certificate, mountPath: /etc/lazuli/metrics, readOnly: true}
{{- end }}
{{- end }}

{{/* The volumes of those files, with the same arguments. */}}
{{- define "lazuli.azureVolumes" -}}
{{- $values := .root.Values }}
{{- if $values.azure.config }}
- name: azure-config
  configMap: {name: {{ include "lazuli.name" .root }}-azure}
{{- end }}
{{- with $values.azure.hostFile }}
# The file alone, not its folder: beside it are the keys of kubelet.
- name: azure-config
  hostPath: {path: {{ . }}, type: File}
{{- end }}
{{- with $values.azure.endpoints }}
{{- if .configMap }}
- name: azure-endpoints
  configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key | quote }}, path: endpoints.json}]
{{- end }}
{{- end }}
{{- if .identity.clientId }}
- name: azure-token
  projected:
    sources:
      - serviceAccountToken: {audience: {{ $values.azure.workloadIdentity.audience | quote }}, expirationSeconds: 3600, path: token}
{{- end }}
{{- with .certificate }}
- name: azure-client-certificate
  secret: {secretName: {{ . }}}
{{- end }}
{{- with $values.certificateAuthorities }}
{{- if .configMap }}
- name: certificate-authorities
  configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key | quote }}, path: ca-certificates.crt}]
{{- end }}
{{- end }}
{{- with include "lazuli.metricsSecret" .root }}
- name: metrics-certificate
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{/* What a process that speaks to Azure may reach. */}}
{{- define "lazuli.azureEgress" -}}
{{- $ports := .Values.networkPolicy.egressPorts }}
{{- range list .Values.proxy.https .Values.proxy.http }}
{{- with . }}
{{- $given := regexFind ":[0-9]+/?$" . | trimPrefix ":" | trimSuffix "/" }}
{{- $ports = append $ports (int (default (ternary "443" "80" (hasPrefix "https:" .)) $given)) }}
{{- end }}
{{- end -}}
# Names.
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
# The API server, Azure, and a proxy.
- ports:
    {{- range $ports | uniq }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
# The metadata service, which gives a managed identity its token.
- to:
    - ipBlock: {cidr: 169.254.169.254/32}
  ports:
    - {protocol: TCP, port: 80}
{{- end }}
