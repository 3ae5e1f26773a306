//go:build tools

// Package tools pins the command that the sanity tier builds and runs.
package tools

import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
