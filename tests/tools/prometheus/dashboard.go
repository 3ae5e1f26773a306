package dashboards

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Dashboard is what Grafana imports, as far as it is judged here.
type Dashboard struct {
	Title         string  `json:"title"`
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	ID            *int    `json:"id"`
	Panels        []Panel `json:"panels"`
	Templating    struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Panel is a row, or a picture with its queries.
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Datasource  *Datasource `json:"datasource"`
	Collapsed   bool        `json:"collapsed"`
	GridPos     Grid        `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
	Panels  []Panel  `json:"panels"`
}

// Grid is where a panel is, in columns of which a page has 24, and rows.
type Grid struct{ X, Y, W, H int }

// Datasource names where queries go.
type Datasource struct{ Type, UID string }

// Target is a query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
}

// Variable is what a reader chooses above the panels.
type Variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Query      json.RawMessage `json:"query"`
	Definition string          `json:"definition"`
	AllValue   string          `json:"allValue"`
	IncludeAll bool            `json:"includeAll"`
}

// ParseDashboard reads a dashboard.
func ParseDashboard(text []byte) (*Dashboard, error) {
	var dashboard Dashboard
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, fmt.Errorf("the dashboard is no JSON: %w", err)
	}
	return &dashboard, nil
}

// All gives the panels that are no rows.
func (d *Dashboard) All() []Panel {
	var all []Panel
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			all = append(all, panel.Panels...)
		} else {
			all = append(all, panel)
		}
	}
	return all
}

// Query is one query of a panel as it is asked.
type Query struct {
	// Name is the panel's title and the letter of the query.
	Name   string
	Expr   string
	Legend string
}

// Queries gives the queries of all panels, with what a reader has chosen in place of the variables: everything.
func (d *Dashboard) Queries() []Query {
	var all []Query
	for _, panel := range d.All() {
		for _, target := range panel.Targets {
			all = append(all, Query{Name: panel.Title + " " + target.RefID, Expr: d.chosen(target.Expr), Legend: target.LegendFormat})
		}
	}
	return all
}

// The times that Grafana puts into a query of a page that shows the last hour.
var times = map[string]string{"__rate_interval": "2m", "__range": "1h", "__interval": "30s"}

// variable is a place in a query that Grafana fills.
var variable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// chosen replaces variables. One that the dashboard has not stays.
func (d *Dashboard) chosen(query string) string {
	return variable.ReplaceAllStringFunc(query, func(place string) string {
		name := strings.Trim(place, "${}")
		if value, known := times[name]; known {
			return value
		}
		for _, variable := range d.Templating.List {
			if variable.Name == name && variable.IncludeAll {
				return variable.AllValue
			}
		}
		return place
	})
}

// labelValues is the only question that the variables ask.
var labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

// QueryOf gives what a variable asks: series, and the label whose values are offered.
func (d *Dashboard) QueryOf(variable Variable) (series, label string, err error) {
	var query struct {
		Query string `json:"query"`
	}
	if err := json.Unmarshal(variable.Query, &query); err != nil {
		return "", "", fmt.Errorf("the variable %s: %w", variable.Name, err)
	}
	parts := labelValues.FindStringSubmatch(query.Query)
	if parts == nil || query.Query != variable.Definition {
		return "", "", fmt.Errorf("the variable %s asks %q, and %q is shown: both must be one label_values(series, label)",
			variable.Name, query.Query, variable.Definition)
	}
	return d.chosen(parts[1]), parts[2], nil
}

// legendLabel is a label in a legend.
var legendLabel = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// LegendLabels gives the labels that a legend shows.
func LegendLabels(legend string) []string {
	var names []string
	for _, place := range legendLabel.FindAllStringSubmatch(legend, -1) {
		names = append(names, place[1])
	}
	return names
}

// Layout says what a reader of the dashboard would miss.
func (d *Dashboard) Layout() []string {
	var found []string
	complain := func(format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) }
	if d.ID != nil {
		complain("it has an id, which only a Grafana that has imported it gives")
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
		complain("it needs a uid, a title, and a schemaVersion of Grafana 11 or newer")
	}
	ids, titles := map[int]string{}, map[string]bool{}
	var judge func(panels []Panel)
	judge = func(panels []Panel) {
		for at, panel := range panels {
			if other, twice := ids[panel.ID]; twice || panel.ID == 0 {
				complain("%q has the id %d, as %q has", panel.Title, panel.ID, other)
			}
			ids[panel.ID] = panel.Title
			for _, other := range panels[:at] {
				if overlap(panel.GridPos, other.GridPos) {
					complain("%q lies on %q", panel.Title, other.Title)
				}
			}
			if panel.GridPos.W < 1 || panel.GridPos.X+panel.GridPos.W > 24 {
				complain("%q is wider than the page", panel.Title)
			}
			if titles[panel.Title] || strings.TrimSpace(panel.Title) == "" {
				complain("a panel is called %q, as another one or not at all", panel.Title)
			}
			titles[panel.Title] = true
			if panel.Type == "row" {
				judge(panel.Panels)
				continue
			}
			if panel.Datasource == nil || panel.Datasource.UID != "${datasource}" {
				complain("%q does not ask the data source that the reader chooses", panel.Title)
			}
			if panel.FieldConfig.Defaults.Unit == "" {
				complain("%q has no unit", panel.Title)
			}
			// One sentence says what it shows, the next one what to do.
			if strings.Count(panel.Description, ".") < 2 {
				complain("the description of %q does not say what to do", panel.Title)
			}
			if len(panel.Targets) == 0 {
				complain("%q asks nothing", panel.Title)
			}
		}
	}
	judge(d.Panels)
	return found
}

func overlap(one, other Grid) bool {
	return one.X < other.X+other.W && other.X < one.X+one.W && one.Y < other.Y+other.H && other.Y < one.Y+one.H
}
