//go:build tools

// Package tools pins the command that the chart tier builds and runs.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
