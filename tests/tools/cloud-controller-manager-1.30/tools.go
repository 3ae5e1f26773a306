//go:build tools

// Package tools pins the Go cloud controller manager whose writes the load balancer planners are compared with.
package tools

import _ "sigs.k8s.io/cloud-provider-azure/cmd/cloud-controller-manager"
