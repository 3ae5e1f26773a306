package dashboards

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/rules"
)

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	found, err := Alerts(*rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// when is a story in which an alert fires, and one like it in which it does not. A value is that of a minute.
type when struct {
	fires, silent []string
	// says is a part of its summary.
	says string
}

const (
	controller = `job="lazuli-controller-metrics",endpoint="metrics",instance="10.0.0.4:29644"`
	cloud      = `job="lazuli-controller-metrics",endpoint="cloud-metrics",instance="10.0.0.4:29649"`
	node       = `job="lazuli-node-metrics",endpoint="metrics",instance="10.0.0.5:29646"`
)

func rpc(method, code, values string) string {
	return `lazuli_rpc_duration_seconds_count{` + controller + `,method="` + method + `",code="` + code + `"} ` + values
}

// slow are the buckets of a histogram of which all observations lie above limit, and fast of which none does.
func slow(name, labels, limit string) []string {
	return []string{name + `{` + labels + `,le="` + limit + `"} 0x60`, name + `{` + labels + `,le="300"} 0+1x60`, name + `{` + labels + `,le="+Inf"} 0+1x60`}
}

func fast(name, labels, limit string) []string {
	return []string{name + `{` + labels + `,le="` + limit + `"} 0+1x60`, name + `{` + labels + `,le="+Inf"} 0+1x60`}
}

var stories = map[string]when{
	"LazuliControllerAbsent": {
		fires:  []string{`lazuli_build_info{` + node + `} 1x20`},
		silent: []string{`lazuli_build_info{` + controller + `} 1x20`},
	},
	"LazuliControllerRestarts": {
		fires:  []string{`process_uptime_seconds{` + controller + `} 60 120 0 60 0 60 0 60 0 60`},
		silent: []string{`process_uptime_seconds{` + controller + `} 60 120 0 60 0 60 0 60 120`},
	},
	"LazuliAzureRefusesIdentity": {
		fires:  []string{rpc("CreateVolume", "PermissionDenied", "0+1x40")},
		silent: []string{rpc("CreateVolume", "Aborted", "0+1x40")},
		says:   "CreateVolume",
	},
	"LazuliThrottled": {
		fires:  []string{`lazuli_azure_throttled_total{` + controller + `,resource="disks"} 0+2x60`},
		silent: []string{`lazuli_azure_throttled_total{` + controller + `,resource="disks"} 0+1x60`},
		says:   "disks",
	},
	"LazuliAzureQueueLong": {
		fires:  slow("lazuli_azure_permit_wait_seconds_bucket", controller+`,bucket="reads"`, "60"),
		silent: fast("lazuli_azure_permit_wait_seconds_bucket", controller+`,bucket="reads"`, "60"),
		says:   "reads",
	},
	"LazuliAttachSlow": {
		fires:  slow("lazuli_rpc_duration_seconds_bucket", controller+`,method="ControllerPublishVolume",code="Ok"`, "120"),
		silent: slow("lazuli_rpc_duration_seconds_bucket", controller+`,method="ControllerPublishVolume",code="Aborted"`, "120"),
	},
	"LazuliCallsFail": {
		fires:  []string{rpc("NodeStageVolume", "Internal", "0+1x60")},
		silent: []string{rpc("NodeStageVolume", "Internal", "0+1x4 4x60")},
		says:   "NodeStageVolume",
	},
	"LazuliRequestsRefused": {
		fires:  []string{rpc("CreateVolume", "InvalidArgument", "0+1x90")},
		silent: []string{rpc("CreateVolume", "InvalidArgument", "0+1x4 4x90")},
		says:   "CreateVolume",
	},
	"LazuliOutOfQuota": {
		fires:  []string{rpc("CreateVolume", "ResourceExhausted", "0+1x90")},
		silent: []string{rpc("CreateVolume", "ResourceExhausted", "5x90")},
	},
	"LazuliKeysRefused": {
		fires:  []string{`lazuli_key_requests_total{` + controller + `,outcome="denied"} 0+1x60`},
		silent: []string{`lazuli_key_requests_total{` + controller + `,outcome="granted"} 0+1x60`},
	},
	"LazuliKeysMissing": {
		fires:  []string{`lazuli_key_requests_total{` + controller + `,outcome="no_key"} 0+1x60`},
		silent: []string{`lazuli_key_requests_total{` + controller + `,outcome="granted"} 0+1x60`},
	},
	"LazuliKeySecretsStale": {
		fires:  []string{`lazuli_key_secret_updates_total{` + controller + `,outcome="failed"} 0+1x90`},
		silent: []string{`lazuli_key_secret_updates_total{` + controller + `,outcome="written"} 0+1x90`},
	},
	"LazuliServicesAbsent": {
		fires:  []string{`lazuli_build_info{` + controller + `} 1x20`},
		silent: []string{`lazuli_build_info{` + cloud + `} 1x20`},
	},
	"LazuliServicesWithoutLeader": {
		fires: []string{
			`lazuli_leader{` + cloud + `,lease="kube-system/cloud-controller-manager"} 0x30`,
			`lazuli_leader{` + cloud + `,lease="kube-system/other"} 1x30`,
		},
		silent: []string{
			`lazuli_leader{` + cloud + `,pod="a",lease="kube-system/cloud-controller-manager"} 0x30`,
			`lazuli_leader{` + cloud + `,pod="b",lease="kube-system/cloud-controller-manager"} 1x30`,
		},
	},
	"LazuliServicesRefused": {
		fires:  []string{`lazuli_reconcile_actions_total{` + cloud + `,kind="service",action="report"} 0+2x120`},
		silent: []string{`lazuli_reconcile_actions_total{` + cloud + `,kind="service",action="report"} 0+2x10 20x110`},
	},
	"LazuliServiceWritesSlow": {
		fires:  slow("lazuli_reconcile_action_seconds_bucket", cloud+`,kind="load_balancer",action="take_permit"`, "60"),
		silent: slow("lazuli_reconcile_action_seconds_bucket", cloud+`,kind="load_balancer",action="sleep"`, "60"),
		says:   "load_balancer",
	},
	"LazuliBug": {
		fires:  []string{`lazuli_reconcile_panics_total{` + controller + `,kind="vm"} 0x5 1x20`},
		silent: []string{`lazuli_reconcile_panics_total{` + controller + `,kind="vm"} 1x20`},
		says:   "vm",
	},
	"LazuliNodeDown": {
		fires:  []string{`up{` + node + `} 1 0x30`},
		silent: []string{`up{` + node + `} 0x10 1x30`},
		says:   "10.0.0.5:29646",
	},
	"LazuliSharesNotMounted": {
		fires:  []string{`lazuli_share_mounts_total{` + node + `,outcome="key_missing"} 0+1x60`},
		silent: []string{`lazuli_share_mounts_total{` + node + `,outcome="mounted"} 0+1x60`},
		says:   "key_missing",
	},
	"LazuliFileServerHangs": {
		fires:  []string{`lazuli_share_calls_hung_total{` + node + `} 0x5 1+1x40`},
		silent: []string{`lazuli_share_calls_hung_total{` + node + `} 3x40`},
		says:   "10.0.0.5:29646",
	},
	"LazuliShareMountsDead": {
		fires:  []string{`lazuli_share_mounts_dead_total{` + node + `} 0x5 1x20`},
		silent: []string{`lazuli_share_mounts_dead_total{` + node + `} 1x20`},
		says:   "10.0.0.5:29646",
	},
}

func firing(t *testing.T, alert rulefmt.Rule, series []string) []rules.Alert {
	t.Helper()
	prometheus, err := NewPrometheus(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer prometheus.Close()
	if err := prometheus.AppendDescribed(series); err != nil {
		t.Fatal(err)
	}
	fired, err := prometheus.Firing(alert)
	if err != nil {
		t.Fatal(err)
	}
	return fired
}

func TestEachAlertFiresInItsStoryAndIsSilentInTheOneBesideIt(t *testing.T) {
	table := reference(t)
	seen := map[string]bool{}
	for _, alert := range alerts(t) {
		seen[alert.Alert] = true
		t.Run(alert.Alert, func(t *testing.T) {
			story, told := stories[alert.Alert]
			if !told {
				t.Fatal("there is no story in which it fires")
			}
			for _, problem := range append(Problems(alert.Expr, table), unseen(alert.Expr)...) {
				t.Error(problem)
			}
			for _, series := range append(story.fires, story.silent...) {
				for _, problem := range Problems(strings.SplitAfter(series, "}")[0], table) {
					t.Errorf("its story is of nothing that exists: %s", problem)
				}
			}
			fired := firing(t, alert, story.fires)
			if len(fired) == 0 {
				t.Fatalf("it does not fire: %s", alert.Expr)
			}
			judgeWords(t, fired[0], story.says)
			if fired := firing(t, alert, story.silent); len(fired) > 0 {
				t.Errorf("it fires without a reason: %s", fired[0].Labels)
			}
		})
	}
	for name := range stories {
		if !seen[name] {
			t.Errorf("%s has a story and is no alert", name)
		}
	}
}

// judgeWords checks what a person reads of an alert that fires.
func judgeWords(t *testing.T, fired rules.Alert, says string) {
	t.Helper()
	for _, part := range []string{"summary", "description", "action"} {
		text := fired.Annotations.Get(part)
		if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "<error") || strings.Contains(text, "{{") {
			t.Errorf("its %s is %q", part, text)
		}
	}
	// What a label gives is not there when the expression drops the label.
	if summary := fired.Annotations.Get("summary"); !strings.Contains(summary, says) || strings.Contains(summary, "  ") {
		t.Errorf("its summary is %q, without %q", summary, says)
	}
	if fired.Labels.Get("severity") == "" || fired.Labels.Get(labels.AlertName) == "" {
		t.Errorf("its labels are %s", fired.Labels)
	}
}

func TestAFleetAtWorkFiresNoAlert(t *testing.T) {
	prometheus := observed(t)
	for _, alert := range alerts(t) {
		fired, err := prometheus.Firing(alert)
		if err != nil {
			t.Fatalf("%s: %v", alert.Alert, err)
		}
		if len(fired) > 0 {
			t.Errorf("%s fires: %s", alert.Alert, fired[0].Annotations)
		}
	}
}
