//go:build kubernetes1.36

package main

import kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"

// nodeStartupLatency measures a node's start as Kubernetes does up to 1.36.
func nodeStartupLatency() kubeletutil.NodeStartupLatencyTracker {
	return kubeletutil.NewNodeStartupLatencyTracker()
}
