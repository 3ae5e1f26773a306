{{/* Labels of every object. */}}
{{- define "lazuli.labels" -}}
app.kubernetes.io/name: lazuli
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Labels of the parts of one workload: dict "root" . "component" "controller". */}}
{{- define "lazuli.selector" -}}
app.kubernetes.io/name: lazuli
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* A reference to an image: dict "registry" "..." "image" dict-of-repository-tag-digest "default" "tag". */}}
{{- define "lazuli.image" -}}
{{- $name := printf "%s/%s" (trimSuffix "/" .registry) .image.repository -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .image.tag | default .default }}
{{- end -}}
{{- end }}

{{/* What the level "restricted" of pod security asks of a container. */}}
{{- define "lazuli.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Arguments that both subcommands have. */}}
{{- define "lazuli.logArgs" -}}
- --log={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- end }}

{{/* The folder of the driver's sockets and records on a node. */}}
{{- define "lazuli.pluginDir" -}}
{{ .Values.node.kubeletDir }}/plugins/{{ include "lazuli.driver" . }}
{{- end }}

{{/* The driver. Volume ids, leases and paths contain the name, so it is no value. */}}
{{- define "lazuli.driver" -}}
disk.csi.azure.com
{{- end }}

{{/* The names of the sidecars' leases, which are those of the Go driver: two drivers never act at once. */}}
{{- define "lazuli.leases" -}}
- disk-csi-azure-com
- external-attacher-leader-disk-csi-azure-com
- external-resizer-disk-csi-azure-com
{{- end }}
