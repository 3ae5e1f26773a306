//go:build !kubernetes1.36

package main

import (
	"k8s.io/klog/v2"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
)

// nodeStartupLatency measures a node's start as Kubernetes does from 1.37 on.
func nodeStartupLatency() kubeletutil.NodeStartupLatencyTracker {
	return kubeletutil.NewNodeStartupLatencyTracker(klog.Background())
}
