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

{{/* Probes of the driver's container. The context is the host that kubelet asks, or nothing for the pod's address. */}}
{{- define "lazuli.probes" -}}
{{- $host := "" }}
{{- with . }}{{ $host = printf ", host: %s" . }}{{ end -}}
# Two minutes: before it serves, the driver may wait 30 s for each answer about its configuration.
startupProbe:
  httpGet: {path: /healthz, port: health{{ $host }}}
  periodSeconds: 2
  failureThreshold: 60
# A process that answers nothing for 100 s hangs; one on a busy machine may need seconds.
livenessProbe:
  httpGet: {path: /healthz, port: health{{ $host }}}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 5
{{- end }}

{{/*
The Secret with the certificate of the metrics. Prometheus sends its token only where it can verify who answers, so the
chart makes a Secret where none is named. Empty: each process makes a certificate at its start.
*/}}
{{- define "lazuli.metricsSecret" -}}
{{- with .Values.metrics.certificateSecret -}}
{{ . }}
{{- else -}}
{{- if .Values.monitoring.serviceMonitor.enabled }}lazuli-metrics{{ end }}
{{- end }}
{{- end }}

{{/* Arguments for metrics by TLS. */}}
{{- define "lazuli.metricsArgs" -}}
- --metrics-authentication=kubernetes
{{- if include "lazuli.metricsSecret" . }}
- --metrics-certificate=/etc/lazuli/metrics/tls.crt
- --metrics-key=/etc/lazuli/metrics/tls.key
{{- end }}
{{- end }}

{{/* How Prometheus reads the driver's metrics: dict "root" . "service" "lazuli-controller-metrics". */}}
{{- define "lazuli.scrape" -}}
port: metrics
interval: {{ .root.Values.monitoring.serviceMonitor.interval }}
scheme: https
# Prometheus' own token, which the driver has reviewed by the API server.
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
tlsConfig:
  ca: {secret: {name: {{ include "lazuli.metricsSecret" .root }}, key: ca.crt}}
  serverName: {{ .service }}.{{ .root.Release.Namespace }}.svc
{{- end }}

{{/* Arguments that both subcommands have. */}}
{{- define "lazuli.logArgs" -}}
- --log={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- end }}

{{/* The folder of the disk driver's socket and records on a node. */}}
{{- define "lazuli.pluginDir" -}}
{{ .Values.node.kubeletDir }}/plugins/{{ include "lazuli.driver" . }}
{{- end }}

{{/* The disk driver. Volume ids, leases and paths contain the name, so it is no value. */}}
{{- define "lazuli.driver" -}}
disk.csi.azure.com
{{- end }}

{{/* The names of the sidecars' leases, which are those of the Go driver: two drivers never act at once. */}}
{{- define "lazuli.leases" -}}
- disk-csi-azure-com
- external-attacher-leader-disk-csi-azure-com
- external-resizer-disk-csi-azure-com
{{- if .Values.azureFile.enabled }}
- file-csi-azure-com
- external-resizer-file-csi-azure-com
{{- end }}
{{- end }}
