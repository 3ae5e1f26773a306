package dashboards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// Alerts reads the alerts of the PrometheusRule in a stream of manifests, as strictly as Prometheus reads its files.
func Alerts(path string) ([]rulefmt.Rule, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for documents := yaml.NewDecoder(file); ; {
		var manifest struct {
			Kind string    `yaml:"kind"`
			Spec yaml.Node `yaml:"spec"`
		}
		if err := documents.Decode(&manifest); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no PrometheusRule", path)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if manifest.Kind != "PrometheusRule" {
			continue
		}
		text, err := yaml.Marshal(&manifest.Spec)
		if err != nil {
			return nil, err
		}
		groups, problems := rulefmt.Parse(text, false, model.UTF8Validation, queries, promslog.NewNopLogger())
		if len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
		var alerts []rulefmt.Rule
		for _, group := range groups.Groups {
			alerts = append(alerts, group.Rules...)
		}
		return alerts, nil
	}
}

// Firing evaluates an alert each minute, and gives what it says each time that it fires.
func (p *Prometheus) Firing(alert rulefmt.Rule) ([]rules.Alert, error) {
	expression, err := queries.ParseExpr(alert.Expr)
	if err != nil {
		return nil, err
	}
	rule := rules.NewAlertingRule(alert.Alert, expression, time.Duration(alert.For), time.Duration(alert.KeepFiringFor),
		labels.FromMap(alert.Labels), labels.FromMap(alert.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	var fired []rules.Alert
	for at := Start; !at.After(p.Last); at = at.Add(time.Minute) {
		if _, err := rule.Eval(context.Background(), 0, at, p.Instant, &url.URL{}, 0); err != nil {
			return nil, err
		}
		for _, active := range rule.ActiveAlerts() {
			if active.State == rules.StateFiring {
				fired = append(fired, *active)
			}
		}
	}
	return fired, nil
}
