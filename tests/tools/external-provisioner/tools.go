//go:build tools

// Package tools pins the command that the cluster tier builds and runs.
package tools

import _ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
