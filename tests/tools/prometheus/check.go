package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// TargetLabels are those that the Prometheus operator gives to every series of a ServiceMonitor.
var TargetLabels = []string{"job", "namespace", "service", "pod", "container", "endpoint", "instance"}

// Codes are those of gRPC, as the program spells them.
var Codes = strings.Fields(`Ok Cancelled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied
	ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss Unauthenticated`)

// Problems says what is wrong with a query by the names in it: a metric that does not exist, a label that it does not have.
func Problems(query string, reference map[string]Metric) []string {
	expression, err := queries.ParseExpr(query)
	if err != nil {
		return []string{fmt.Sprintf("it cannot be parsed: %v", err)}
	}
	var found []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			found = append(found, selectorProblems(node, reference)...)
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				if !everyMetricHas(node.Expr, label, reference) {
					found = append(found, fmt.Sprintf("it groups by %q, which %s has not", label, node.Expr))
				}
			}
		case *parser.BinaryExpr:
			if node.VectorMatching == nil {
				return nil
			}
			for _, label := range node.VectorMatching.MatchingLabels {
				if !everyMetricHas(node, label, reference) {
					found = append(found, fmt.Sprintf("it matches on %q, which not every metric of it has", label))
				}
			}
		}
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found)
}

func selectorProblems(selector *parser.VectorSelector, reference map[string]Metric) []string {
	metric, known := reference[selector.Name]
	if !known {
		return []string{fmt.Sprintf("no process has the metric %q", selector.Name)}
	}
	var found []string
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name != labels.MetricName && !has(metric, matcher.Name) {
			found = append(found, fmt.Sprintf("%s has no label %q", selector.Name, matcher.Name))
		}
	}
	return found
}

func has(metric Metric, label string) bool {
	return slices.Contains(metric.Labels, label) || slices.Contains(TargetLabels, label)
}

// everyMetricHas says whether the label is one of every known metric of an expression.
func everyMetricHas(expression parser.Expr, label string, reference map[string]Metric) bool {
	all := true
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			metric, known := reference[selector.Name]
			all = all && (!known || has(metric, label))
		}
		return nil
	})
	return all
}

// plainWords are the alternatives of a matcher that names values; none for other regular expressions.
var plainWords = regexp.MustCompile(`^[A-Za-z0-9_]+(\|[A-Za-z0-9_]+)*$`)

// ValuesUsed gives the values of labels of metrics that a query names, as label=value.
func ValuesUsed(query string) []string {
	expression, err := queries.ParseExpr(query)
	if err != nil {
		return nil
	}
	var used []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		for _, matcher := range selector.LabelMatchers {
			if slices.Contains(TargetLabels, matcher.Name) || matcher.Name == labels.MetricName || !plainWords.MatchString(matcher.Value) {
				continue
			}
			for _, value := range strings.Split(matcher.Value, "|") {
				used = append(used, matcher.Name+"="+value)
			}
		}
		return nil
	})
	return used
}

// Mutants gives wrong versions of a query: one for each name of a metric or label in it, misspelt.
func Mutants(query string) []string {
	expression, err := queries.ParseExpr(query)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			names[node.Name] = true
			for _, matcher := range node.LabelMatchers {
				names[matcher.Name] = true
			}
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				names[label] = true
			}
		}
		return nil
	})
	delete(names, labels.MetricName)
	var mutants []string
	for name := range names {
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		mutants = append(mutants, word.ReplaceAllString(query, misspelt(name)))
	}
	slices.Sort(mutants)
	return mutants
}

// misspelt drops the second letter. Every name of a metric or label has two.
func misspelt(name string) string { return name[:1] + name[2:] }
