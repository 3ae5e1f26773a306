//go:build tools

// Package tools pins the Go disk driver that the gopeers tier builds and runs.
package tools

import _ "sigs.k8s.io/azuredisk-csi-driver/pkg/azurediskplugin"
