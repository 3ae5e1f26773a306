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
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// kubeletFolder is the kubelet's folder: the usual one, which the chart names. A node has a mount namespace of its own.
const kubeletFolder = "/var/lib/kubelet"

// kubeletOptions are what a node's kubelet is told.
type kubeletOptions struct {
	kubeconfig, node, address, machine, cloudProvider, runtimeEndpoint, clientAuthority string
}

// newKubeletCommand runs a kubelet whose container manager and statistics of the machine are Kubernetes' own fakes: it
// knows no cgroup. The container runtime is another process.
func newKubeletCommand() *cobra.Command {
	var of kubeletOptions
	command := &cobra.Command{
		Use: "kubelet",
		RunE: func(command *cobra.Command, _ []string) error {
			return runKubelet(command.Context(), of)
		},
	}
	command.Flags().StringVar(&of.kubeconfig, "kubeconfig", "", "the API server and the node's credentials")
	command.Flags().StringVar(&of.node, "node", "", "the name of the node")
	command.Flags().StringVar(&of.address, "node-ip", "", "the address of the node")
	command.Flags().StringVar(&of.machine, "provider-id", "", "the machine, as a cloud controller manager would name it")
	command.Flags().StringVar(&of.cloudProvider, "cloud-provider", "", "external: a cloud controller manager initialises the node")
	command.Flags().StringVar(&of.clientAuthority, "client-ca-file", "", "the authority of the API server's own certificate")
	command.Flags().StringVar(&of.runtimeEndpoint, "container-runtime-endpoint", "", "where the container runtime serves")
	return command
}

func runKubelet(ctx context.Context, of kubeletOptions) error {
	config, err := clientcmd.BuildConfigFromFlags("", of.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	staticPods, podLogs := filepath.Join(kubeletFolder, "static-pods"), filepath.Join(kubeletFolder, "pod-logs")
	for _, folder := range []string{staticPods, podLogs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}

	tracer := noopoteltrace.NewTracerProvider()
	runtimeService, err := remote.NewRemoteRuntimeService(ctx, of.runtimeEndpoint, 15*time.Second, tracer, false)
	if err != nil {
		return fmt.Errorf("the container runtime: %w", err)
	}
	imageService, err := remote.NewRemoteImageService(ctx, of.runtimeEndpoint, 15*time.Second, tracer, false)
	if err != nil {
		return fmt.Errorf("the container runtime's images: %w", err)
	}

	flags := options.NewKubeletFlags()
	flags.RootDirectory = kubeletFolder
	flags.HostnameOverride = of.node
	flags.NodeIP = of.address
	flags.CloudProvider = of.cloudProvider
	flags.MinimumGCAge = metav1.Duration{Duration: time.Minute}
	flags.MaxContainerCount = 100
	flags.MaxPerPodContainerCount = 2
	settings, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	settings.ContainerRuntimeEndpoint = of.runtimeEndpoint
	settings.ImageServiceEndpoint = of.runtimeEndpoint
	settings.EnableServer = true
	settings.Address = of.address
	settings.ReadOnlyPort = 0
	settings.HealthzPort = 0
	settings.StaticPodPath = staticPods
	settings.PodLogsDir = podLogs
	settings.NodeStatusUpdateFrequency.Duration = 2 * time.Second
	// The lease is renewed four times as often. A node that stops is noticed the sooner.
	settings.NodeLeaseDurationSeconds = 8
	settings.SyncFrequency.Duration = 2 * time.Second
	settings.MaxPods = 200
	settings.ProviderID = of.machine
	settings.VolumeStatsAggPeriod.Duration = 2 * time.Second
	settings.CgroupsPerQOS = false
	settings.EnforceNodeAllocatable = nil
	settings.HairpinMode = kubeletconfig.HairpinVeth
	settings.ResolverConfig = "/dev/null"
	settings.EnableControllerAttachDetach = true
	settings.RegisterNode = true
	settings.LocalStorageCapacityIsolation = false
	// A test kills containers again and again.
	settings.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}

	// The API server calls it for logs and exec, with a certificate of this authority.
	settings.Authentication.X509.ClientCAFile = of.clientAuthority
	flags.CertDirectory = filepath.Join(kubeletFolder, "pki")
	tls, err := kubeletapp.InitializeTLS(ctx, flags, settings)
	if err != nil {
		return fmt.Errorf("the kubelet's certificate: %w", err)
	}
	auth, runAuthorityReload, err := kubeletapp.BuildAuth(types.NodeName(of.node), client, *settings)
	if err != nil {
		return fmt.Errorf("who may call the kubelet: %w", err)
	}
	runAuthorityReload(ctx.Done())

	mounter := mount.New("")
	var plugins []volume.VolumePlugin
	for _, some := range [][]volume.VolumePlugin{
		configmap.ProbeVolumePlugins(),
		csi.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(),
		emptydir.ProbeVolumePlugins(),
		hostpath.ProbeVolumePlugins(volume.VolumeConfig{}),
		projected.ProbeVolumePlugins(),
		secret.ProbeVolumePlugins(),
	} {
		plugins = append(plugins, some...)
	}
	dependencies := &kubelet.Dependencies{
		Auth:                      auth,
		TLSOptions:                tls,
		KubeClient:                client,
		HeartbeatClient:           client,
		RemoteRuntimeService:      runtimeService,
		RemoteImageService:        imageService,
		CAdvisorInterface:         &cadvisortest.Fake{NodeName: of.node},
		OSInterface:               kubecontainer.RealOS{},
		ContainerManager:          cm.NewStubContainerManager(),
		VolumePlugins:             plugins,
		OOMAdjuster:               oom.NewFakeOOMAdjuster(),
		Mounter:                   mounter,
		Subpather:                 subpath.New(mounter),
		HostUtil:                  hostutil.NewHostUtil(),
		PodStartupLatencyTracker:  kubeletutil.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: nodeStartupLatency(),
		TracerProvider:            tracer,
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
