{{/* The file driver. Volume ids, leases and paths contain the name, so it is no value. */}}
{{- define "lazuli.fileDriver" -}}
file.csi.azure.com
{{- end }}

{{/* The folder of the file driver's socket on a node. */}}
{{- define "lazuli.filePluginDir" -}}
{{ .Values.node.kubeletDir }}/plugins/{{ include "lazuli.fileDriver" . }}
{{- end }}

{{/* Text where the controllers hand keys of accounts to the node plugins, and nothing where they do not. */}}
{{- define "lazuli.keyBroker" -}}
{{- with .Values.azureFile }}{{ if and .enabled (eq .secretAccess "broker") }}yes{{ end }}{{ end }}
{{- end }}

{{/* The last of the ports of the file driver in the controller's pod: two sidecars, then the key broker. */}}
{{- define "lazuli.fileLastPort" -}}
{{ add (int .Values.azureFile.port) (ternary 2 1 (eq .Values.azureFile.secretAccess "broker")) }}
{{- end }}

{{/* The audience of the tokens that node plugins show to the key broker. The API server takes them for nothing else. */}}
{{- define "lazuli.keyAudience" -}}
lazuli-key-broker
{{- end }}

{{/* Arguments of the controller for file shares. */}}
{{- define "lazuli.fileControllerArgs" -}}
{{- if .Values.azureFile.enabled }}
- --file-endpoint=unix:///csi-file/csi.sock
{{- if include "lazuli.keyBroker" . }}
- --key-broker-endpoint=:{{ add (int .Values.azureFile.port) 2 }}
- --key-broker-certificate=/etc/lazuli/key-broker/tls.crt
- --key-broker-key=/etc/lazuli/key-broker/tls.key
- --key-broker-node-account={{ .Release.Namespace }}/{{ include "lazuli.account" (dict "root" . "of" "node") }}
{{- end }}
{{- end }}
{{- end }}

{{/* Arguments of the node plugin for file shares. */}}
{{- define "lazuli.fileNodeArgs" -}}
{{- if .Values.azureFile.enabled }}
- --file-endpoint=unix:///csi-file/lazuli.sock
- --file-kubelet-socket={{ include "lazuli.filePluginDir" . }}/lazuli.sock
- --storage-endpoint-suffix={{ .Values.azureFile.storageEndpointSuffix }}
{{- if include "lazuli.keyBroker" . }}
- --secret-access=broker
- --key-broker-service={{ .Release.Namespace }}/{{ include "lazuli.name" . }}-key-broker
- --key-broker-authority=/etc/lazuli/key-broker/ca.crt
- --key-broker-token=/var/run/secrets/lazuli-key-broker/token
{{- else }}
- --secret-access={{ .Values.azureFile.secretAccess }}
{{- with .Values.azureFile.secretNamespaces }}
- --secret-namespaces={{ join "," . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The sidecars of the file driver. Shares are attached to no node, so there is no attacher, and they have no topology. */}}
{{- define "lazuli.fileSidecars" -}}
{{- range $index, $sidecar := list "provisioner" "resizer" }}
{{- $values := index $.Values.sidecars $sidecar }}
{{- $port := add (int $.Values.azureFile.port) $index }}
{{- /* At most 15 characters. */}}
{{- $portName := ternary "file-provision" "file-resize" (eq $sidecar "provisioner") }}
- name: csi-file-{{ $sidecar }}
  image: {{ include "lazuli.image" (dict "registry" $.Values.sidecars.registry "image" $values "default" "") }}
  imagePullPolicy: {{ $.Values.sidecars.pullPolicy }}
  args:
    - --csi-address=unix:///csi/csi.sock
    - --http-endpoint=:{{ $port }}
    - --leader-election
    - --leader-election-namespace=$(NAMESPACE)
    {{- include "lazuli.sidecarArgs" (dict "root" $ "sidecar" $sidecar "driver" "file") | nindent 4 }}
  {{- include "lazuli.sidecarEnv" $values | nindent 2 }}
  ports:
    - {name: {{ $portName }}, containerPort: {{ $port }}, protocol: TCP}
  livenessProbe:
    # Fails when the leader can renew its lease no more.
    httpGet: {path: /healthz/leader-election, port: {{ $portName }}}
    initialDelaySeconds: 10
    periodSeconds: 20
    timeoutSeconds: 10
  {{- include "lazuli.restricted" $ | nindent 2 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  volumeMounts:
    - {name: file-socket, mountPath: /csi}
{{- end }}
{{- end }}
