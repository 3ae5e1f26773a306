{{/* The component, ServiceAccount and pods that run the cloud controllers. */}}
{{- define "lazuli.cloudControllersComponent" -}}
{{ ternary "cloud-controllers" "controller" .Values.cloudControllers.deployment.enabled }}
{{- end }}

{{/* The first port of the cloud controllers: health, then metrics, then admission reviews. */}}
{{- define "lazuli.cloudControllersPort" -}}
{{- if .Values.cloudControllers.deployment.enabled }}{{ int .Values.cloudControllers.deployment.port }}{{ else }}{{ add (int .Values.controller.port) 5 }}{{ end }}
{{- end }}

{{/* The Secret with the cloud configuration of the cloud controllers, as JSON. */}}
{{- define "lazuli.cloudControllersSecret" -}}
{{- $own := .Values.cloudControllers.deployment.cloudConfigSecret }}
{{- if and .Values.cloudControllers.deployment.enabled $own.name }}{{ $own | toJson }}{{ else }}{{ .Values.azure.cloudConfigSecret | toJson }}{{ end }}
{{- end }}

{{/* The workload identity of the cloud controllers, as JSON. */}}
{{- define "lazuli.cloudControllersIdentity" -}}
{{- $own := .Values.cloudControllers.deployment.workloadIdentity }}
{{- if and .Values.cloudControllers.deployment.enabled $own.clientId }}{{ $own | toJson }}{{ else }}{{ .Values.azure.workloadIdentity | toJson }}{{ end }}
{{- end }}

{{/* The Secret with their client certificate. With a configuration or an identity of their own it is not the driver's. */}}
{{- define "lazuli.cloudControllersCertificate" -}}
{{- $own := .Values.cloudControllers.deployment }}
{{- if and $own.enabled (or $own.cloudConfigSecret.name $own.workloadIdentity.clientId $own.clientCertificateSecret) -}}
{{ $own.clientCertificateSecret }}
{{- else -}}
{{ .Values.azure.clientCertificateSecret }}
{{- end }}
{{- end }}

{{/*
Text where a controller is named by cloudControllers.controllers, and nothing where it is not: dict "root" . "controller"
"node-route". The first entry that names it decides, by any of its names, and else whether there is a "*".
*/}}
{{- define "lazuli.runs" -}}
{{- $names := index (.root.Files.Get "files/names.json" | fromJson).controllers .controller }}
{{- $list := .root.Values.cloudControllers.controllers }}
{{- $decided := "" }}
{{- range $list }}
{{- if not $decided }}
{{- if has . $names }}{{ $decided = "yes" }}{{ else if and (hasPrefix "-" .) (has (trimPrefix "-" .) $names) }}{{ $decided = "no" }}{{ end }}
{{- end }}
{{- end }}
{{- if eq ($decided | default (ternary "yes" "no" (has "*" $list))) "yes" }}yes{{ end }}
{{- end }}

{{/* Text where the cloud controllers look after Nodes or routes, and nothing where they do not. */}}
{{- define "lazuli.initialises" -}}
{{- if .Values.cloudControllers.enabled }}
{{- $root := . }}
{{- range list "cloud-node" "cloud-node-lifecycle" "node-route" }}
{{- include "lazuli.runs" (dict "root" $root "controller" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What initialises Nodes and routes runs before there is an initialised Node with a route. */}}
{{- define "lazuli.bootstrapTolerations" -}}
# What initialises Nodes and routes runs before there is an initialised Node with a route.
- {key: node.cloudprovider.kubernetes.io/uninitialized, operator: Exists, effect: NoSchedule}
- {key: node.kubernetes.io/network-unavailable, operator: Exists, effect: NoSchedule}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}
{{- end }}

{{/* Where the processes answer lazuli why. No sidecar mounts it. */}}
{{- define "lazuli.runVolume" -}}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}

{{/* The mount of that volume, in a container of ours. */}}
{{- define "lazuli.runMount" -}}
- {name: run, mountPath: /run/lazuli}
{{- end }}

{{/* The volume of the webhook's certificate. */}}
{{- define "lazuli.webhookVolume" -}}
{{- with .Values.cloudControllers }}
{{- if and .enabled .webhook.enabled }}
- name: webhook-certificate
  secret: {secretName: {{ .webhook.certificateSecret | default (printf "%s-webhook" (include "lazuli.name" $)) }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The container of the cloud controllers: in the controller's pod, or in a pod of its own. */}}
{{- define "lazuli.cloudControllers" -}}
{{- $controller := .Values.controller }}
{{- $hostNetwork := ternary .Values.cloudControllers.deployment.hostNetwork $controller.hostNetwork .Values.cloudControllers.deployment.enabled }}
{{- $port := int (include "lazuli.cloudControllersPort" .) }}
{{- $identity := include "lazuli.cloudControllersIdentity" . | fromJson }}
{{- with .Values.cloudControllers }}
- name: cloud-controllers
  image: {{ include "lazuli.image" (dict "registry" $.Values.image.registry "image" $.Values.image.controller "default" $.Chart.AppVersion) }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  args:
    - cloud-controllers
    - --health-endpoint={{ if $hostNetwork }}127.0.0.1{{ end }}:{{ $port }}
    - --metrics-endpoint=:{{ add $port 1 }}
    {{- include "lazuli.metricsArgs" $ | nindent 4 }}
    {{- if $.Values.metrics.goNames }}
    - --go-metrics
    {{- end }}
    - --cluster-name={{ .clusterName }}
    - --lease-name={{ .leaseName }}
    - --lease-namespace={{ .leaseNamespace }}
    {{- with .loadBalancerClass }}
    - --load-balancer-class={{ . }}
    {{- end }}
    {{- with .zones }}
    - --zones={{ join "," . }}
    {{- end }}
    {{- with .acceptPlan }}
    - --accept-plan={{ . }}
    {{- end }}
    {{- with .allowedExternalAddresses }}
    - --allowed-external-addresses={{ join "," . }}
    {{- end }}
    {{- if ne .shareAddresses "any" }}
    - --share-addresses={{ .shareAddresses }}
    {{- end }}
    {{- with .allowedServiceResourceGroups }}
    - --allowed-service-resource-groups={{ join "," . }}
    {{- end }}
    - --resync-seconds={{ int .resyncSeconds }}
    - --controllers={{ join "," .controllers }}
    {{- with .clusterCidr }}
    - --cluster-cidr={{ join "," . }}
    {{- end }}
    {{- with .serviceClusterIpRange }}
    - --service-cluster-ip-range={{ join "," . }}
    {{- end }}
    - --node-status-update-frequency={{ .nodeStatusUpdateFrequency }}
    {{- if .webhook.enabled }}
    - --webhook-address=:{{ add $port 2 }}
    - --webhook-certificate=/etc/lazuli/webhook/tls.crt
    - --webhook-key=/etc/lazuli/webhook/tls.key
    {{- with $.Values.azure.allowedResourceGroups }}
    - --allowed-resource-groups={{ join "," . }}
    {{- end }}
    {{- end }}
    - --drain-seconds={{ int $controller.drainSeconds }}
    {{- include "lazuli.cloudArgs" (dict "root" $ "secret" (include "lazuli.cloudControllersSecret" $ | fromJson)) | nindent 4 }}
    {{- include "lazuli.logArgs" $ | nindent 4 }}
    {{- range .extraArgs }}
    - {{ . | quote }}
    {{- end }}
  {{- with include "lazuli.azureEnv" (dict "root" $ "identity" $identity "extra" .extraEnv) | trim }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  ports:
    - {name: cloud-health, containerPort: {{ $port }}, protocol: TCP}
    - {name: cloud-metrics, containerPort: {{ add $port 1 }}, protocol: TCP}
    {{- if .webhook.enabled }}
    - {name: cloud-webhook, containerPort: {{ add $port 2 }}, protocol: TCP}
    {{- end }}
  # A replica that waits for the Lease is alive. There is no readiness probe: a rollout does not wait for load balancers.
  {{- $host := ternary ", host: 127.0.0.1" "" $hostNetwork }}
  startupProbe:
    httpGet: {path: /healthz, port: cloud-health{{ $host }}}
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: cloud-health{{ $host }}}
    periodSeconds: 20
    timeoutSeconds: 5
    failureThreshold: 5
  {{- include "lazuli.restricted" $ | nindent 2 }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  volumeMounts:
    {{- include "lazuli.runMount" $ | nindent 4 }}
    {{- with include "lazuli.azureMounts" (dict "root" $ "identity" $identity "certificate" (include "lazuli.cloudControllersCertificate" $)) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if .webhook.enabled }}
    - {name: webhook-certificate, mountPath: /etc/lazuli/webhook, readOnly: true}
    {{- end }}
    {{- with .extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{/* Who may ask for admission reviews. */}}
{{- define "lazuli.reviewsIngress" -}}
{{- if .Values.cloudControllers.webhook.enabled -}}
# Admission reviews, from the API server: in most clusters it is no pod, and has no address that could be named here.
- ports:
    - {protocol: TCP, port: {{ add (int (include "lazuli.cloudControllersPort" .)) 2 }}}
{{- end }}
{{- end }}
