{{/* Each alert says what is wrong, what it costs, and what to do. */}}
{{- define "lazuli.alerts" -}}
{{- $prefix := include "lazuli.name" . -}}
- alert: LazuliControllerAbsent
  expr: absent(lazuli_build_info{job="{{ $prefix }}-controller-metrics"}) == 1
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: No Lazuli controller is scraped.
    description: No disk is created, attached, detached or expanded. Pods that run keep their volumes.
    action: "kubectl -n {{ .Release.Namespace }} get pods -l app.kubernetes.io/component=controller; then describe the pods and read the log of the container lazuli. lazuli doctor checks the cloud configuration. Where the pods are ready, the targets page of Prometheus says why they are not scraped; deploy/events-and-alerts.md explains 401, 403 and 503."
- alert: LazuliControllerRestarts
  expr: resets(process_uptime_seconds{job="{{ $prefix }}-controller-metrics"}[1h]) > 3
  labels: {severity: warning}
  annotations:
    summary: A container of the Lazuli controller restarted more than three times in an hour.
    description: Each restart repeats reads of Azure. No volume is lost by it.
    action: "kubectl -n {{ .Release.Namespace }} logs -l app.kubernetes.io/component=controller -c lazuli --previous; where the last state says OOMKilled, raise controller.resources."
- alert: LazuliAzureRefusesIdentity
  expr: sum by (method) (increase(lazuli_rpc_duration_seconds_count{code=~"PermissionDenied|Unauthenticated"}[15m])) > 0
  for: 15m
  labels: {severity: critical}
  annotations:
    summary: "{{ "{{ $labels.method }}" }} fails because Azure refuses the controller's identity."
    description: The identity has expired, or lacks an action on the resource group of the disk or the VM.
    action: Read the error in the log of the controller; it names the action and the scope. Compare the role with deploy/azure, and run lazuli doctor.
- alert: LazuliThrottled
  expr: sum by (resource) (increase(lazuli_azure_throttled_total[15m])) > 20
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "Azure throttles requests for {{ "{{ $labels.resource }}" }}."
    description: Lazuli keeps to its share of Azure's buckets, so another client of the same identity or VM uses them up.
    action: Give Lazuli an identity of its own, and look in Azure's activity log for who else asks. Volumes wait and are served later.
- alert: LazuliAzureQueueLong
  expr: histogram_quantile(0.95, sum by (bucket, le) (rate(lazuli_azure_permit_wait_seconds_bucket[10m]))) > 60
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "Requests wait more than a minute for Azure's bucket {{ "{{ $labels.bucket }}" }}."
    description: More volumes change at once than Azure allows one identity.
    action: Wait when a rollout or a drain is the reason. Otherwise spread the cluster's disks over subscriptions, or ask Azure for higher limits.
- alert: LazuliAttachSlow
  expr: histogram_quantile(0.95, sum by (le) (rate(lazuli_rpc_duration_seconds_bucket{method="ControllerPublishVolume",code="Ok"}[15m]))) > 120
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: Attaching a disk takes more than two minutes.
    description: Pods with volumes start late.
    action: Compare lazuli_azure_operation_seconds with lazuli_azure_permit_wait_seconds; the first is Azure's own time, the second a queue. Look at Azure's status page for the region when the first is large.
- alert: LazuliCallsFail
  expr: sum by (method) (increase(lazuli_rpc_duration_seconds_count{code=~"Internal|Unknown|FailedPrecondition"}[15m])) > 5
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "{{ "{{ $labels.method }}" }} keeps failing."
    description: A volume is not created, attached, detached or mounted, and repetition alone does not help.
    action: kubectl describe the pod and the claim that wait; the event has the error, and the error says what to do.
- alert: LazuliRequestsRefused
  expr: sum by (method) (increase(lazuli_rpc_duration_seconds_count{code=~"InvalidArgument|OutOfRange"}[30m])) > 5
  for: 30m
  labels: {severity: info}
  annotations:
    summary: "{{ "{{ $labels.method }}" }} is refused for what the StorageClass or the claim says."
    description: A parameter, a size or a mount option cannot be used. Nothing was made in Azure.
    action: kubectl describe the claims that are Pending. The event names the parameter, its value and what is allowed; make a new StorageClass, for a class cannot be changed.
- alert: LazuliOutOfQuota
  expr: sum by (method) (increase(lazuli_rpc_duration_seconds_count{code="ResourceExhausted"}[30m])) > 0
  for: 30m
  labels: {severity: warning}
  annotations:
    summary: Azure has no capacity or quota for disks, or a VM takes no more of them.
    description: The scheduler tries other nodes. Pods stay Pending when none fits.
    action: Read the event of the claim or the pod. Ask Azure for quota, use a larger VM size, or allow more zones.
- alert: LazuliBug
  expr: sum by (job, kind) (increase(lazuli_reconcile_panics_total[1h])) > 0
  labels: {severity: warning}
  annotations:
    summary: "A bug broke off the work on an object of kind {{ "{{ $labels.kind }}" }}."
    description: The object is read and planned again from the beginning.
    action: "kubectl -n {{ .Release.Namespace }} logs -l app.kubernetes.io/name={{ $prefix }} --all-containers --prefix --tail=-1; report the lines that say panicked, and those before."
{{- if include "lazuli.keyBroker" . }}
- alert: LazuliKeysRefused
  expr: sum by (outcome) (increase(lazuli_key_requests_total{outcome=~"denied|unauthenticated"}[15m])) > 5
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: The key broker refuses requests for keys of storage accounts.
    description: "A client asks with a token that is not a node plugin's, or for a volume that no pod on its node uses. Such a pod does not start; a stranger gets nothing."
    action: "kubectl -n {{ .Release.Namespace }} logs -l app.kubernetes.io/component=controller -c lazuli; the log names the node and the volume. Where the pod exists, describe it and its claim. Where no pod asks for it, look at that node."
- alert: LazuliKeysMissing
  expr: sum(increase(lazuli_key_requests_total{outcome="no_key"}[15m])) > 0
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: The key broker has no key for a share.
    description: Pods with that share do not start. Those that run keep theirs.
    action: kubectl describe the pod that waits. Its event names the Secret, or the action that the identity lacks; compare the role with deploy/azure/role-files.json.
- alert: LazuliKeySecretsStale
  expr: sum(increase(lazuli_key_secret_updates_total{outcome="failed"}[30m])) > 0
  for: 30m
  labels: {severity: warning}
  annotations:
    summary: A Secret with the key of a storage account does not follow a rotation.
    description: Lazuli's nodes get the new key all the same. What else reads that Secret has a key that Azure refuses.
    action: "kubectl -n {{ .Release.Namespace }} logs -l app.kubernetes.io/component=controller -c lazuli; the log names the Secret. See that ClusterRole or Role {{ $prefix }}-account-keys has update on secrets, and that no admission policy forbids it; or delete the Secret."
{{- end }}
{{- if .Values.cloudControllers.enabled }}
{{- $component := include "lazuli.cloudControllersComponent" . }}
{{- $job := printf "%s-%s-metrics" $prefix $component }}
- alert: LazuliServicesAbsent
  expr: absent(lazuli_build_info{job="{{ $job }}",endpoint="cloud-metrics"}) == 1
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: No container cloud-controllers of Lazuli is scraped.
    description: No load balancer follows its Service or the nodes. What Azure has goes on serving.
    action: "kubectl -n {{ .Release.Namespace }} logs -l app.kubernetes.io/component={{ $component }} -c cloud-controllers; a configuration that cannot be used is named in the first lines. Where another replica has lost the Lease, look whether the Azure cloud-controller-manager uses the same one."
- alert: LazuliServicesWithoutLeader
  expr: sum(lazuli_leader{lease="{{ .Values.cloudControllers.leaseNamespace }}/{{ .Values.cloudControllers.leaseName }}",job="{{ $job }}",endpoint="cloud-metrics"}) == 0
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: No replica of Lazuli's cloud controllers holds the Lease.
    description: Another controller holds it and serves the Services, or it is free. What Azure has goes on serving.
    action: "kubectl -n {{ .Values.cloudControllers.leaseNamespace }} get lease {{ .Values.cloudControllers.leaseName }} -o yaml; the holder's name begins with that of the pod."
- alert: LazuliServicesRefused
  expr: sum by (kind) (increase(lazuli_reconcile_actions_total{kind="service",action="report",job="{{ $job }}",endpoint="cloud-metrics"}[1h])) > 50
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: Services of type LoadBalancer report again and again.
    description: Azure refuses what they ask for, or something changes them all the time.
    action: "kubectl get events --all-namespaces --field-selector type=Warning,involvedObject.kind=Service; each event says what was refused and what to do."
- alert: LazuliServiceWritesSlow
  expr: histogram_quantile(0.95, sum by (kind, le) (rate(lazuli_reconcile_action_seconds_bucket{action=~"write|take_permit",job="{{ $job }}",endpoint="cloud-metrics"}[15m]))) > 60
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "Writes of {{ "{{ $labels.kind }}" }} for Services take more than a minute to begin."
    description: Services get their addresses late; those that are served go on being served.
    action: Compare lazuli_azure_permit_wait_seconds and lazuli_azure_throttled_total, which show whether Azure's limits are the reason.
{{- end }}
{{- if .Values.node.exposeMetrics }}
- alert: LazuliNodeDown
  expr: up{job="{{ $prefix }}-node-metrics"} == 0
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "The Lazuli node plugin at {{ "{{ $labels.instance }}" }} does not answer."
    description: No volume is mounted or unmounted on that node. Pods that run keep their volumes.
    action: "kubectl -n {{ .Release.Namespace }} get pods -l app.kubernetes.io/component=node -o wide; read the log of the pod on that node."
{{- if .Values.azureFile.enabled }}
- alert: LazuliSharesNotMounted
  expr: sum by (instance, outcome) (increase(lazuli_share_mounts_total{outcome!="mounted"}[15m])) > 3
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "File shares are not mounted at {{ "{{ $labels.instance }}" }}: {{ "{{ $labels.outcome }}" }}."
    description: Pods with those shares do not start there. Shares that are mounted go on working.
    action: kubectl describe the pods that wait on that node. The events AccountKeyUnavailable, AccountKeyDenied, AccountKeyMissing, AccountKeyRefused, FileServerUnreachable and FileShareNotFound say what to do.
- alert: LazuliFileServerHangs
  expr: sum by (instance) (increase(lazuli_share_calls_hung_total[15m])) > 0
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: "The server of a file share that is mounted at {{ "{{ $labels.instance }}" }} does not answer."
    description: Pods wait for their files. What is mounted heals when the server answers again.
    action: See whether that node reaches TCP port 445 of the storage accounts whose shares it has mounted, and look at Azure's status page for the region.
- alert: LazuliShareMountsDead
  expr: sum by (instance) (increase(lazuli_share_mounts_dead_total[15m])) > 0
  labels: {severity: warning}
  annotations:
    summary: "Mounts of file shares at {{ "{{ $labels.instance }}" }} are dead."
    description: A new pod gets a new mount as soon as the server takes it. Pods that ran before keep the dead one.
    action: The events FileMountDead name the volumes. Restart the pods on that node that use them if they cannot read their files; where a key was rotated, that is to be expected.
{{- end }}
{{- end }}
{{- end }}
