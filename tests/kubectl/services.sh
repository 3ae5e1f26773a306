# What a person does with kubectl, against any cluster of Lazuli with the Nodes node-0 and node-1. Its output is services.txt,
# but for times, addresses, ports, versions and the widths of columns. KUBECONFIG says which cluster. It works in the current
# folder.
set -u

# say COMMAND...: prints the command and what it prints, and its exit code where that is not 0.
say() {
    printf '$ %s\n' "$*"
    "$@" 2>&1 || printf 'exit code %s\n' "$?"
}

# until_it COMMAND...: waits until a command prints something.
until_it() {
    local tries
    for tries in {1..300}; do
        [[ -n $("$@" 2>/dev/null) ]] && return
        sleep 0.2
    done
    printf 'never: %s\n' "$*"
}

cat >web.yaml <<'END'
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: LoadBalancer
  selector: {app: web}
  ports:
  - port: 80
END

# It must watch before the Service is there: on a fast Azure it has its address at once.
kubectl get services --watch >watched.txt 2>&1 &
watching=$!
until_it grep kubernetes watched.txt
say kubectl apply -f web.yaml
until_it kubectl get service web -o 'jsonpath={.status.loadBalancer.ingress[0].ip}'
until_it grep -E ' [0-9.]+ +[0-9.]+ +80:' watched.txt
kill "$watching"
printf '$ kubectl get services --watch\n'
awk 'NR == 1 || $1 == "web" { print $1, $2, $4 }' watched.txt | uniq
say kubectl get svc web
say kubectl get svc web -o wide
say kubectl get svc web -o 'jsonpath={.spec.type}{"\n"}'
until_it kubectl get events --field-selector involvedObject.name=web,reason=EnsuredLoadBalancer -o name
printf '$ kubectl describe svc web\n'
kubectl describe svc web | sed -E 's, \(x[0-9]+ over [^)]*\),,' | grep -E '^(Name|Selector|Type|Port|TargetPort|NodePort): |EnsuredLoadBalancer'

say kubectl get no
say kubectl get no -o name

sed 's/port: 80/port: 8080/' web.yaml >changed.yaml
say kubectl apply -f changed.yaml --dry-run=server
say kubectl get svc web
say kubectl apply -f changed.yaml
KUBE_EDITOR='sed -i s/8080/8081/' say kubectl edit svc web
say kubectl label svc web team=blue
say kubectl get svc -l team=blue
say kubectl get service/web node/node-0 -o name
say kubectl annotate node node-0 lazuli.test/seen=yes
say kubectl annotate node node-0 lazuli.test/seen-

sed 's/port: 80/prot: 80/' web.yaml >wrong.yaml
say kubectl create -f wrong.yaml
say kubectl create -f web.yaml
say kubectl get svc absent

until_it kubectl get service web -o 'jsonpath={.status.loadBalancer.ingress[0].ip}'
say kubectl delete -f web.yaml -o name
say kubectl get svc web
printf '$ kubectl explain svc.spec.ports.port\n'
kubectl explain svc.spec.ports.port | head -4
