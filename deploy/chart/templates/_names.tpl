{{/*
The name that all names of objects begin with. It is not made from the release's name: the name of a release that exists
must not rename its objects.
*/}}
{{- define "lazuli.name" -}}
{{ .Values.fullnameOverride | default "lazuli" }}
{{- end }}

{{/* Labels by which the parts of one workload find each other: dict "root" . "component" "controller". They never change. */}}
{{- define "lazuli.selector" -}}
app.kubernetes.io/name: {{ include "lazuli.name" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of an object or a pod: dict "root" . and, where there are, "component" "labels". */}}
{{- define "lazuli.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" (include "lazuli.name" .root) }}
{{- with .component }}
{{- $_ := set $labels "app.kubernetes.io/component" . }}
{{- end }}
{{- with .root }}
{{- $_ := set $labels "app.kubernetes.io/instance" .Release.Name }}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $labels "app.kubernetes.io/part-of" "lazuli" }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) }}
{{- end }}
{{- merge $labels (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml }}
{{- end }}

{{/*
The metadata of an object: dict "root" . "name" "controller", which is put behind the name of the chart, or "object" the
whole name; and, where there are, "namespace" "component" "labels" "annotations".
*/}}
{{- define "lazuli.metadata" -}}
{{- $prefix := include "lazuli.name" .root -}}
name: {{ if hasKey . "object" }}{{ .object }}{{ else }}{{ with .name }}{{ $prefix }}-{{ . }}{{ else }}{{ $prefix }}{{ end }}{{ end }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "lazuli.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The values of a workload: dict "root" . "of" controller, node or cloud-controllers. As JSON. */}}
{{- define "lazuli.workload" -}}
{{- with .root.Values }}
{{- (dict "controller" .controller "node" .node "cloud-controllers" .cloudControllers.deployment) | toJson }}
{{- end }}
{{- end }}

{{/* The name of a workload's ServiceAccount: dict "root" . "of" controller, node or cloud-controllers. */}}
{{- define "lazuli.account" -}}
{{- $workload := index (include "lazuli.workload" . | fromJson) .of }}
{{- $workload.serviceAccount.name | default (printf "%s-%s" (include "lazuli.name" .root) .of) }}
{{- end }}

{{/* How a pod finds names: dict "of" its values "hostNetwork". */}}
{{- define "lazuli.dns" -}}
{{- with .of.dnsPolicy | default (ternary "Default" "" .hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .of.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
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

{{/* What the level "restricted" of pod security asks of a pod. Root reads the host's azure.json, and is not "restricted". */}}
{{- define "lazuli.podSecurity" -}}
{{- $user := int64 .Values.controller.runAsUser -}}
securityContext:
  runAsNonRoot: {{ ne $user 0 }}
  runAsUser: {{ $user }}
  runAsGroup: {{ $user }}
  seccompProfile: {type: RuntimeDefault}
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
{{- if .Values.monitoring.serviceMonitor.enabled }}{{ include "lazuli.name" . }}-metrics{{ end }}
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

{{/* How Prometheus reads the driver's metrics: dict "root" . "service" "controller-metrics". */}}
{{- define "lazuli.scrape" -}}
port: metrics
interval: {{ .root.Values.monitoring.serviceMonitor.interval }}
scheme: https
# Prometheus' own token, which the driver has reviewed by the API server.
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
tlsConfig:
  ca: {secret: {name: {{ include "lazuli.metricsSecret" .root }}, key: ca.crt}}
  serverName: {{ include "lazuli.name" .root }}-{{ .service }}.{{ .root.Release.Namespace }}.svc
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

{{/* Text where the controller takes snapshots, and nothing where it does not. */}}
{{- define "lazuli.snapshots" -}}
{{- $enabled := .Values.snapshots.enabled }}
{{- if kindIs "invalid" $enabled }}
{{- if .Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1/VolumeSnapshotContent" }}yes{{ end }}
{{- else if $enabled }}yes{{ end }}
{{- end }}

{{/* The sidecars of the disk driver, as JSON. */}}
{{- define "lazuli.diskSidecars" -}}
{{- concat (list "provisioner" "attacher" "resizer") (ternary (list "snapshotter") (list) (eq (include "lazuli.snapshots" .) "yes")) | toJson }}
{{- end }}

{{/* The port of a sidecar of the disk driver: dict "root" . "sidecar" its name. */}}
{{- define "lazuli.sidecarPort" -}}
{{- with .root.Values }}
{{- index (dict "provisioner" (add (int .controller.port) 1) "attacher" (add (int .controller.port) 2) "resizer" (add (int .controller.port) 3) "snapshotter" (int .snapshots.port)) $.sidecar }}
{{- end }}
{{- end }}

{{/* The names of the sidecars' leases, which are those of the Go driver: two drivers never act at once. */}}
{{- define "lazuli.leases" -}}
- disk-csi-azure-com
- external-attacher-leader-disk-csi-azure-com
- external-resizer-disk-csi-azure-com
{{- if include "lazuli.snapshots" . }}
- external-snapshotter-leader-disk-csi-azure-com
{{- end }}
{{- if .Values.azureFile.enabled }}
- file-csi-azure-com
- external-resizer-file-csi-azure-com
{{- end }}
{{- end }}
