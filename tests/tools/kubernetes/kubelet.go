package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	probetest "k8s.io/kubernetes/pkg/kubelet/prober/testing"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// newKubeletCommand runs a kubelet that mounts volumes and runs no container: the container runtime, the container
// manager and the statistics are Kubernetes' own fakes.
func newKubeletCommand() *cobra.Command {
	var kubeconfig, node, root string
	var port int
	command := &cobra.Command{
		Use: "kubelet",
		RunE: func(command *cobra.Command, _ []string) error {
			return runKubelet(command.Context(), kubeconfig, node, root, port)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the API server and who is asking")
	command.Flags().StringVar(&node, "node", "", "the name of the node")
	command.Flags().StringVar(&root, "root-dir", "", "the kubelet's folder")
	command.Flags().IntVar(&port, "port", 0, "where the kubelet serves")
	return command
}

func runKubelet(ctx context.Context, kubeconfig, node, root string, port int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, folder := range []string{"static-pods", "pod-logs"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}

	endpoint := "unix://" + filepath.Join(root, "cri.sock")
	runtime := fakeremote.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		return fmt.Errorf("the container runtime: %w", err)
	}
	defer runtime.Stop()
	runtimeService, err := remote.NewRemoteRuntimeService(ctx, endpoint, 15*time.Second, noopoteltrace.NewTracerProvider(), false)
	if err != nil {
		return fmt.Errorf("the container runtime: %w", err)
	}

	flags := options.NewKubeletFlags()
	flags.RootDirectory = root
	flags.HostnameOverride = node
	flags.MinimumGCAge = metav1.Duration{Duration: time.Minute}
	flags.MaxContainerCount = 100
	flags.MaxPerPodContainerCount = 2
	settings, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	settings.ContainerRuntimeEndpoint = endpoint
	settings.ImageServiceEndpoint = endpoint
	settings.EnableServer = true
	settings.Address = "127.0.0.1"
	settings.Port = int32(port)
	settings.ReadOnlyPort = 0
	settings.HealthzPort = 0
	settings.StaticPodPath = filepath.Join(root, "static-pods")
	settings.PodLogsDir = filepath.Join(root, "pod-logs")
	settings.NodeStatusUpdateFrequency.Duration = 2 * time.Second
	settings.SyncFrequency.Duration = 2 * time.Second
	settings.MaxPods = 200
	settings.ProviderID = "test://" + node
	settings.VolumeStatsAggPeriod.Duration = 2 * time.Second
	settings.CgroupsPerQOS = false
	settings.EnforceNodeAllocatable = nil
	settings.HairpinMode = kubeletconfig.HairpinVeth
	settings.ResolverConfig = "/dev/null"
	settings.EnableControllerAttachDetach = true
	settings.RegisterNode = true
	settings.LocalStorageCapacityIsolation = false

	mounter := mount.New("")
	plugins := append(csi.ProbeVolumePlugins(), emptydir.ProbeVolumePlugins()...)
	dependencies := &kubelet.Dependencies{
		KubeClient:                client,
		HeartbeatClient:           client,
		ProbeManager:              probetest.FakeManager{},
		RemoteRuntimeService:      runtimeService,
		RemoteImageService:        runtime.ImageService,
		CAdvisorInterface:         &cadvisortest.Fake{NodeName: node},
		OSInterface:               kubecontainer.RealOS{},
		ContainerManager:          cm.NewStubContainerManager(),
		VolumePlugins:             append([]volume.VolumePlugin{}, plugins...),
		OOMAdjuster:               oom.NewFakeOOMAdjuster(),
		Mounter:                   mounter,
		Subpather:                 subpath.New(mounter),
		HostUtil:                  hostutil.NewHostUtil(),
		PodStartupLatencyTracker:  kubeletutil.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(),
		TracerProvider:            noopoteltrace.NewTracerProvider(),
		// The real one wants to read /dev/kmsg.
		Recorder: &record.FakeRecorder{},
	}
	server := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *settings}
	if err := kubeletapp.RunKubelet(ctx, server, dependencies); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
