//go:build tools

// Package tools pins the command that the cluster tier builds and runs.
package tools

import _ "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"
