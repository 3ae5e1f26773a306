//go:build tools

// Package tools pins the Go cloud controller manager whose writes the load balancer planners are compared with, and the
// Go cloud node manager, from which and to which Nodes are handed over.
package tools

import (
	_ "sigs.k8s.io/cloud-provider-azure/cmd/cloud-controller-manager"
	_ "sigs.k8s.io/cloud-provider-azure/cmd/cloud-node-manager"
)
