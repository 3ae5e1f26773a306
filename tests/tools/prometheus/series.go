package dashboards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Interval is the time between two scrapes: the chart's default.
const Interval = 30 * time.Second

// Start is when the first scrape takes place. Any time would do.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// queries parses PromQL as a Prometheus without feature flags does.
var queries = parser.NewParser(parser.Options{})

// Page is what one target answered to a scrape.
type Page struct {
	// Target has the labels that Prometheus adds: job, instance and others.
	Target      map[string]string
	ContentType string
	Body        []byte
}

// Sample is one line of a page, with the labels of its target.
type Sample struct {
	Labels labels.Labels
	Value  float64
}

// Samples parses a page as Prometheus does.
func (p Page) Samples() ([]Sample, error) {
	lines, err := textparse.New(p.Body, p.ContentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Target["job"], err)
	}
	if lines == nil {
		return nil, fmt.Errorf("%s: Prometheus does not know the format %q", p.Target["job"], p.ContentType)
	}
	var samples []Sample
	for {
		entry, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Target["job"], err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		lines.Labels(&own)
		_, _, value := lines.Series()
		samples = append(samples, Sample{Labels: withTarget(own, p.Target), Value: value})
	}
}

// withTarget adds the labels of the target. Those of the page step aside, as without honor_labels.
func withTarget(own labels.Labels, target map[string]string) labels.Labels {
	builder := labels.NewBuilder(own)
	for name, value := range target {
		if old := own.Get(name); old != "" {
			builder.Set("exported_"+name, old)
		}
		builder.Set(name, value)
	}
	return builder.Labels()
}

// Prometheus is a storage and the engine that queries it.
type Prometheus struct {
	db     *tsdb.DB
	engine *promql.Engine
	// Last is the time of the newest sample.
	Last time.Time
}

// NewPrometheus makes one without samples, which keeps its files in folder.
func NewPrometheus(folder string) (*Prometheus, error) {
	db, err := tsdb.Open(folder, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: queries,
	})
	return &Prometheus{db: db, engine: engine, Last: Start}, nil
}

// Close ends it.
func (p *Prometheus) Close() error { return errors.Join(p.engine.Close(), p.db.Close()) }

// Append stores samples of one time.
func (p *Prometheus) Append(at time.Time, samples []Sample) error {
	appender := p.db.Appender(context.Background())
	for _, sample := range samples {
		if _, err := appender.Append(0, sample.Labels, at.UnixMilli(), sample.Value); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", sample.Labels, err), appender.Rollback())
		}
	}
	if at.After(p.Last) {
		p.Last = at
	}
	return appender.Commit()
}

// AppendDescribed stores series in the notation of promtool, such as `up{job="a"} 0x10 1 _ 2`, a value each minute.
func (p *Prometheus) AppendDescribed(series []string) error {
	byTime := map[int][]Sample{}
	most := 0
	for _, description := range series {
		name, values, err := queries.ParseSeriesDesc(description)
		if err != nil {
			return fmt.Errorf("%s: %w", description, err)
		}
		for at, value := range values {
			if !value.Omitted {
				byTime[at] = append(byTime[at], Sample{Labels: name, Value: value.Value})
			}
			most = max(most, at)
		}
	}
	for at := 0; at <= most; at++ {
		if err := p.Append(Start.Add(time.Duration(at)*time.Minute), byTime[at]); err != nil {
			return err
		}
	}
	return nil
}

// Range asks as a panel does, and gives the series with a number in them: what a graph shows.
func (p *Prometheus) Range(query string, from, to time.Time) (promql.Matrix, error) {
	asked, err := p.engine.NewRangeQuery(context.Background(), p.db, nil, query, from, to, Interval)
	if err != nil {
		return nil, err
	}
	defer asked.Close()
	result := asked.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	if len(result.Warnings) > 0 {
		return nil, fmt.Errorf("Prometheus warns: %w", result.Warnings.AsErrors()[0])
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, err
	}
	var shown promql.Matrix
	for _, series := range matrix {
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
				// The engine takes its memory back.
				shown = append(shown, promql.Series{Metric: series.Metric.Copy(), Floats: append([]promql.FPoint(nil), series.Floats...)})
				break
			}
		}
	}
	return shown, nil
}

// Instant asks at one time.
func (p *Prometheus) Instant(ctx context.Context, query string, at time.Time) (promql.Vector, error) {
	asked, err := p.engine.NewInstantQuery(ctx, p.db, nil, query, at)
	if err != nil {
		return nil, err
	}
	defer asked.Close()
	result := asked.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	switch value := result.Value.(type) {
	case promql.Vector:
		return append(promql.Vector(nil), value...), nil
	case promql.Scalar:
		return promql.Vector{{T: value.T, F: value.V}}, nil
	default:
		return nil, fmt.Errorf("%s gives no vector", query)
	}
}

var _ storage.Queryable = (*tsdb.DB)(nil)

// Repeat stores the pages of one scrape again and again, from `from` until before `to`.
func (p *Prometheus) Repeat(pages []Page, from, to time.Time) error {
	var samples []Sample
	for _, page := range pages {
		own, err := page.Samples()
		if err != nil {
			return err
		}
		// What Prometheus says of the scrape itself.
		samples = append(samples, own...)
		samples = append(samples, Sample{Labels: withTarget(labels.FromStrings("__name__", "up"), page.Target), Value: 1})
	}
	for at := from; at.Before(to); at = at.Add(Interval) {
		if err := p.Append(at, samples); err != nil {
			return err
		}
	}
	return nil
}

// Metric is a row of the reference: what may be asked of it.
type Metric struct {
	Type   string
	Labels []string
}

// Reference reads the table of metrics in deploy/reference/metrics.md: the names that series have, with their labels.
func Reference(page string) (map[string]Metric, error) {
	table := map[string]Metric{}
	for _, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		name := strings.Trim(strings.TrimSpace(cells[1]), "`")
		metric := Metric{Type: strings.TrimSpace(cells[3])}
		for _, label := range strings.Split(cells[4], ",") {
			if label = strings.TrimSpace(label); label != "" {
				metric.Labels = append(metric.Labels, label)
			}
		}
		if metric.Type != "histogram" {
			table[name] = metric
			continue
		}
		for _, suffix := range []string{"_sum", "_count"} {
			table[name+suffix] = metric
		}
		table[name+"_bucket"] = Metric{Type: metric.Type, Labels: append([]string{"le"}, metric.Labels...)}
	}
	if len(table) < 20 {
		return nil, fmt.Errorf("the reference has %d metrics: its table is not understood", len(table))
	}
	// Prometheus' own.
	table["up"] = Metric{Type: "gauge"}
	return table, nil
}
