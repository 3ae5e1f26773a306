package dashboards

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	source "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/prometheus/model/labels"
)

var (
	dashboardFile = flag.String("dashboard", "", "the dashboard, as Grafana imports it")
	rulesFile     = flag.String("rules", "", "a manifest with the PrometheusRule")
	referenceFile = flag.String("reference", "", "the page of metrics")
	documentation = flag.String("documentation", "", "the page of events and alerts")
	keep          = flag.String("keep", "", "a folder in which what the processes answered is kept")
)

// What the fleet answers at two times, with work before each.
var scrapes [2][]Page

func TestMain(m *testing.M) {
	flag.Parse()
	status := 1
	if err := observe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	os.Exit(status)
}

func observe() error {
	// Short, because a socket's path may have 107 bytes.
	folder, err := os.MkdirTemp("/tmp", "lazuli-dash")
	if err != nil {
		return err
	}
	began := time.Now()
	fleet, err := StartFleet(os.Getenv("LAZULI_BIN"), folder)
	if err == nil {
		err = errors.Join(workAndScrape(fleet), fleet.Stop())
	}
	if err != nil {
		return fmt.Errorf("%w; logs are in %s", err, folder)
	}
	fmt.Printf("two scrapes of %d processes after %.1f s\n", len(scrapes[0]), time.Since(began).Seconds())
	if *keep != "" {
		if err := keepPages(*keep); err != nil {
			return err
		}
	}
	return os.RemoveAll(folder)
}

// workAndScrape does all work before each scrape.
func workAndScrape(fleet *Fleet) (err error) {
	for round := range scrapes {
		if err = fleet.Work(round); err != nil {
			return err
		}
		if scrapes[round], err = fleet.Scrape(); err != nil {
			return err
		}
	}
	return nil
}

func keepPages(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for round, pages := range scrapes {
		for _, page := range pages {
			name := fmt.Sprintf("%d-%s-%s.txt", round, page.Target["pod"], page.Target["endpoint"])
			if err := os.WriteFile(filepath.Join(folder, name), page.Body, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func reference(t *testing.T) map[string]Metric {
	t.Helper()
	page, err := os.ReadFile(*referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Reference(string(page))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func dashboard(t *testing.T) *Dashboard {
	t.Helper()
	text, err := os.ReadFile(*dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseDashboard(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// quiet is how long nothing happens before and after the work between the scrapes.
const quiet = 70 * time.Minute

// observed is a Prometheus that has seen the first scrape for a while, then the second one.
func observed(t *testing.T) *Prometheus {
	t.Helper()
	prometheus, err := NewPrometheus(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prometheus.Close() })
	between := Start.Add(quiet)
	if err := prometheus.Repeat(scrapes[0], Start, between); err != nil {
		t.Fatal(err)
	}
	if err := prometheus.Repeat(scrapes[1], between, between.Add(quiet)); err != nil {
		t.Fatal(err)
	}
	return prometheus
}

// show asks a query for a page whose middle is the work between the scrapes.
func show(prometheus *Prometheus, query string) ([]labels.Labels, error) {
	between := Start.Add(quiet)
	matrix, err := prometheus.Range(query, between.Add(-10*time.Minute), between.Add(10*time.Minute))
	var series []labels.Labels
	for _, one := range matrix {
		series = append(series, one.Metric)
	}
	return series, err
}

// Grafana's own types, which know every field and its values.
func TestTheDashboardIsOneByTheSchemaOfGrafana(t *testing.T) {
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterDataqueryVariant(source.VariantConfig())
	text, err := os.ReadFile(*dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	// The types give an empty list of errors where there is none.
	problems := func(text string) string {
		var parsed grafana.Dashboard
		if err := parsed.UnmarshalJSONStrict([]byte(text)); err != nil && err.Error() != "" {
			return err.Error()
		}
		if err := parsed.Validate(); err != nil {
			return err.Error()
		}
		return ""
	}
	if found := problems(string(text)); found != "" {
		t.Error(found)
	}
	for _, wrong := range [][2]string{{`"reduceOptions"`, `"reduceOption"`}, {`"drawStyle"`, `"drawnStyle"`}, {`"gridPos"`, `"grid"`}} {
		if problems(strings.Replace(string(text), wrong[0], wrong[1], 1)) == "" {
			t.Errorf("a field %s, which Grafana does not know, is not found", wrong[1])
		}
	}
}

func TestTheDashboardIsCompleteAndEasyToRead(t *testing.T) {
	parsed := dashboard(t)
	for _, problem := range parsed.Layout() {
		t.Error(problem)
	}
	if panels := len(parsed.All()); panels < 40 {
		t.Errorf("%d panels are found", panels)
	}
}

func TestEveryMetricOfTheReferenceIsOnTheDashboard(t *testing.T) {
	var queries strings.Builder
	for _, query := range dashboard(t).Queries() {
		queries.WriteString(query.Expr + "\n")
	}
	for name, metric := range reference(t) {
		// Of a histogram one of its three series is enough. Names of other projects are for their dashboards.
		stem := name
		if metric.Type == "histogram" {
			stem = name[:strings.LastIndex(name, "_")]
		}
		if strings.HasPrefix(name, "lazuli_") && !strings.Contains(queries.String(), stem) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestTheDocumentationNamesEachRowAndEachAlert(t *testing.T) {
	text, err := os.ReadFile(*documentation)
	if err != nil {
		t.Fatal(err)
	}
	named := []string{}
	for _, panel := range dashboard(t).Panels {
		if panel.Type == "row" {
			named = append(named, panel.Title)
		}
	}
	for _, alert := range alerts(t) {
		named = append(named, alert.Alert)
	}
	for _, name := range named {
		if !strings.Contains(string(text), "\n| "+name+" |") {
			t.Errorf("%s has no row for %s", *documentation, name)
		}
	}
	if len(named) < 30 {
		t.Errorf("%d rows and alerts are found", len(named))
	}
}

func TestTheSeriesOfAllProcessesAreThoseOfTheReference(t *testing.T) {
	table := reference(t)
	for _, page := range slices.Concat(scrapes[0], scrapes[1]) {
		samples, err := page.Samples()
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range samples {
			name := sample.Labels.Get(labels.MetricName)
			metric, known := table[name]
			if !known {
				t.Fatalf("%s has the series %s, and the reference does not know it", page.Target["pod"], sample.Labels)
			}
			sample.Labels.Range(func(label labels.Label) {
				if label.Name != labels.MetricName && !has(metric, label.Name) {
					t.Fatalf("the reference of %s has no label %q: %s", name, label.Name, sample.Labels)
				}
			})
		}
	}
}

func TestEveryQueryOfTheDashboardGivesWhatItIsFor(t *testing.T) {
	parsed, table, prometheus := dashboard(t), reference(t), observed(t)
	queries := parsed.Queries()
	for _, query := range queries {
		t.Run(query.Name, func(t *testing.T) {
			for _, problem := range append(Problems(query.Expr, table), unseen(query.Expr)...) {
				t.Error(problem)
			}
			if left := variable.FindString(query.Expr); left != "" {
				t.Errorf("the dashboard has no variable %s", left)
			}
			series, err := show(prometheus, query.Expr)
			if err != nil {
				t.Fatal(err)
			}
			reason, excused := nothingToSee[query.Name]
			switch {
			case excused && len(series) > 0:
				t.Errorf("it is in the list of those that show nothing, because %s; it shows %s", reason, series)
			case !excused && len(series) == 0:
				t.Errorf("it shows nothing: %s", query.Expr)
			}
			for _, one := range series {
				for _, label := range LegendLabels(query.Legend) {
					if one.Get(label) == "" {
						t.Errorf("its legend shows the label %q, which %s has not", label, one)
					}
				}
			}
		})
	}
	for name := range nothingToSee {
		if !slices.ContainsFunc(queries, func(query Query) bool { return query.Name == name }) {
			t.Errorf("%q shows nothing, and is no query of the dashboard", name)
		}
	}
}

func TestTheVariablesOfTheDashboardOfferWhatTheProcessesHave(t *testing.T) {
	parsed, table, prometheus := dashboard(t), reference(t), observed(t)
	asked := 0
	for _, variable := range parsed.Templating.List {
		if variable.Type != "query" {
			continue
		}
		asked++
		series, label, err := parsed.QueryOf(variable)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range Problems(series, table) {
			t.Errorf("%s: %s", variable.Name, problem)
		}
		found, err := show(prometheus, fmt.Sprintf("group by (%s) (%s)", label, series))
		if err != nil || len(found) == 0 || found[0].Get(label) == "" {
			t.Errorf("%s offers %s (%v)", variable.Name, found, err)
		}
	}
	if asked < 2 {
		t.Errorf("%d variables ask", asked)
	}
}

func TestAMisspeltMetricOrLabelInAnyQueryIsFound(t *testing.T) {
	table := reference(t)
	expressions := map[string]string{}
	for _, query := range dashboard(t).Queries() {
		expressions[query.Name] = query.Expr
	}
	for _, alert := range alerts(t) {
		expressions[alert.Alert] = alert.Expr
	}
	count := 0
	for name, expression := range expressions {
		for _, mutant := range Mutants(expression) {
			count++
			if mutant == expression || len(Problems(mutant, table)) == 0 {
				t.Errorf("%s: nothing is wrong with %s", name, mutant)
			}
		}
	}
	t.Logf("%d mutants", count)
	if count < 200 {
		t.Errorf("%d mutants are too few", count)
	}
}

func TestAValueThatNoSeriesHasAndAVariableThatDoesNotExistAreFound(t *testing.T) {
	prometheus, parsed := observed(t), dashboard(t)
	for _, query := range []string{
		`sum(rate(lazuli_rpc_duration_seconds_count{code="OK"}[2m]))`,
		`sum(rate(lazuli_azure_requests_total{resource="disk"}[2m]))`,
		`sum(lazuli_reconcile_keys{job="lazuli-controler-metrics"})`,
	} {
		if series, err := show(prometheus, query); err != nil || len(series) > 0 {
			t.Errorf("%s shows %s (%v)", query, series, err)
		}
	}
	if found := unseen(`lazuli_rpc_duration_seconds_count{code=~"Ok|OK"}`); len(found) != 1 {
		t.Errorf("the wrong code is not found: %s", found)
	}
	if left := parsed.chosen(`sum(lazuli_reconcile_keys{job=~"$jobs"})`); !variable.MatchString(left) {
		t.Errorf("a variable that the dashboard has not is replaced: %s", left)
	}
}

// unseen gives the values of labels in a query that no process has said, and that are not in the list with a reason.
func unseen(query string) []string {
	var found []string
	for _, value := range ValuesUsed(query) {
		code, isCode := strings.CutPrefix(value, "code=")
		if _, excused := notSaid[value]; !excused && !said()[value] && !(isCode && slices.Contains(Codes, code)) {
			found = append(found, fmt.Sprintf("no process says %s", value))
		}
	}
	return found
}

var saidByAll map[string]bool

// said gives all label=value of the scrapes.
func said() map[string]bool {
	if saidByAll == nil {
		saidByAll = map[string]bool{}
		for _, page := range slices.Concat(scrapes[0], scrapes[1]) {
			samples, _ := page.Samples()
			for _, sample := range samples {
				sample.Labels.Range(func(label labels.Label) { saidByAll[label.Name+"="+label.Value] = true })
			}
		}
	}
	return saidByAll
}

func TestTheListOfWhatIsNotSaidIsNotTooLong(t *testing.T) {
	used := map[string]bool{}
	for _, query := range dashboard(t).Queries() {
		for _, value := range ValuesUsed(query.Expr) {
			used[value] = true
		}
	}
	for _, alert := range alerts(t) {
		for _, value := range ValuesUsed(alert.Expr) {
			used[value] = true
		}
	}
	for value, reason := range notSaid {
		if said()[value] || !used[value] {
			t.Errorf("%s is in the list, because %s; but a process says it, or no query names it", value, reason)
		}
		if strings.TrimSpace(reason) == "" {
			t.Errorf("%s is in the list without a reason", value)
		}
	}
}
