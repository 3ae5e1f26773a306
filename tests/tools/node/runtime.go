package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// service is the container runtime. It keeps nothing that outlives it: its containers end with it.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	node *settings
	// Serves what kubectl exec, attach and port-forward are connected to.
	streams streaming.Server
	// Work for the thread that starts processes.
	starts chan func()

	mutex      sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// How many objects there have been: their ids, and the addresses of pods.
	made int
}

// sandbox is a pod: its network, unless that is the node's.
type sandbox struct {
	id      string
	config  *cri.PodSandboxConfig
	created int64
	ready   bool
	address string
	// Holds the network; nil where it is the node's.
	holder *exec.Cmd
}

type container struct {
	id       string
	sandbox  *sandbox
	config   *cri.ContainerConfig
	created  int64
	started  int64
	finished int64
	exitCode int32
	process  *os.Process
	ended    chan struct{}
	log      *logFile
}

// startRuntime serves at STATE/cri.sock.
func startRuntime(node *settings) (*service, error) {
	listener, err := net.Listen("unix", filepath.Join(node.State, "cri.sock"))
	if err != nil {
		return nil, err
	}
	made := &service{
		node:       node,
		starts:     make(chan func()),
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
	}
	if made.streams, err = startStreams(made); err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, made)
	cri.RegisterImageServiceServer(server, made)
	go server.Serve(listener)
	return made, nil
}

// start runs a program from the thread that ends last.
func (s *service) start(command *exec.Cmd) error {
	done := make(chan error)
	s.starts <- func() { done <- command.Start() }
	return <-done
}

func (s *service) newID(kind string) (string, int) {
	s.made++
	return fmt.Sprintf("%s-%d", kind, s.made), s.made
}

func (s *service) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "processes", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (s *service) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	conditions := []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true}}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: conditions}}, nil
}

func (s *service) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (s *service) RunPodSandbox(_ context.Context, request *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	s.mutex.Lock()
	id, number := s.newID("sandbox")
	s.mutex.Unlock()
	config := request.GetConfig()
	made := &sandbox{id: id, config: config, created: time.Now().UnixNano(), ready: true}
	if networkOf(config) == cri.NamespaceMode_POD {
		// Pods of a test are few: no address is used again.
		made.address = s.node.Pods + "." + strconv.Itoa(2+number%250)
		if err := s.connect(made, number); err != nil {
			return nil, status.Errorf(codes.Internal, "%v", err)
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sandboxes[id] = made
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func networkOf(config *cri.PodSandboxConfig) cri.NamespaceMode {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
}

// connect gives a pod a network namespace that reaches the node's.
func (s *service) connect(of *sandbox, number int) error {
	holder := self(unix.CLONE_NEWNET, "sandbox", of.address+"/24", s.node.Pods+".1")
	connected, err := holder.StdinPipe()
	if err != nil {
		return err
	}
	holder.Stdout = nil
	output, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.start(holder); err != nil {
		return err
	}
	of.holder = holder
	link := fmt.Sprintf("v-%d", number)
	if err := commands(
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", link, holder.Process.Pid),
		fmt.Sprintf("ip link set %s master pods up", link),
	); err != nil {
		of.stop()
		return err
	}
	connected.Close()
	if _, err := io.ReadFull(output, make([]byte, len("connected"))); err != nil {
		of.stop()
		return fmt.Errorf("the pod's network: %w", err)
	}
	return nil
}

func (of *sandbox) stop() {
	of.ready = false
	if of.holder != nil {
		_ = of.holder.Process.Kill()
		_ = of.holder.Wait()
		of.holder = nil
	}
}

func (s *service) StopPodSandbox(_ context.Context, request *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	s.mutex.Lock()
	var left []*container
	for _, one := range s.containers {
		if one.sandbox.id == request.GetPodSandboxId() {
			left = append(left, one)
		}
	}
	s.mutex.Unlock()
	for _, one := range left {
		s.stopContainer(one, 0)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found := s.sandboxes[request.GetPodSandboxId()]; found != nil {
		found.stop()
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (s *service) RemovePodSandbox(ctx context.Context, request *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if _, err := s.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: request.GetPodSandboxId()}); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, one := range s.containers {
		if one.sandbox.id == request.GetPodSandboxId() {
			delete(s.containers, id)
		}
	}
	delete(s.sandboxes, request.GetPodSandboxId())
	return &cri.RemovePodSandboxResponse{}, nil
}

func (of *sandbox) state() cri.PodSandboxState {
	if of.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func (s *service) PodSandboxStatus(_ context.Context, request *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.sandboxes[request.GetPodSandboxId()]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", request.GetPodSandboxId())
	}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id:          found.id,
		Metadata:    found.config.GetMetadata(),
		State:       found.state(),
		CreatedAt:   found.created,
		Network:     &cri.PodSandboxNetworkStatus{Ip: found.address},
		Linux:       &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: found.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      found.config.GetLabels(),
		Annotations: found.config.GetAnnotations(),
	}}, nil
}

func (s *service) ListPodSandbox(_ context.Context, request *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	filter := request.GetFilter()
	answer := &cri.ListPodSandboxResponse{}
	for _, one := range s.sandboxes {
		if filter.GetId() != "" && filter.GetId() != one.id ||
			filter.GetState() != nil && filter.GetState().GetState() != one.state() ||
			!hasLabels(one.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		answer.Items = append(answer.Items, &cri.PodSandbox{
			Id: one.id, Metadata: one.config.GetMetadata(), State: one.state(), CreatedAt: one.created,
			Labels: one.config.GetLabels(), Annotations: one.config.GetAnnotations(),
		})
	}
	return answer, nil
}

func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (s *service) CreateContainer(_ context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	of := s.sandboxes[request.GetPodSandboxId()]
	if of == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", request.GetPodSandboxId())
	}
	if _, known := s.node.Images[request.GetConfig().GetImage().GetImage()]; !known {
		return nil, status.Errorf(codes.NotFound, "no image %s", request.GetConfig().GetImage().GetImage())
	}
	id, _ := s.newID("container")
	s.containers[id] = &container{id: id, sandbox: of, config: request.GetConfig(), created: time.Now().UnixNano(), ended: make(chan struct{})}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

// plan of a container: what the kubelet asks for, on the image's root.
func (s *service) plan(of *container) plan {
	config, context := of.config, of.config.GetLinux().GetSecurityContext()
	image := s.node.Images[config.GetImage().GetImage()]
	made := plan{
		Root:       filepath.Join(s.node.State, of.id),
		Files:      image.Files,
		Args:       config.GetCommand(),
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Folder:     "/",
		HostName:   of.sandbox.config.GetHostname(),
		User:       int(context.GetRunAsUser().GetValue()),
		Group:      int(context.GetRunAsGroup().GetValue()),
		Kept:       usualCapabilities,
		Privileged: context.GetPrivileged(),
		NoNewPrivs: context.GetNoNewPrivs(),
		ReadOnly:   context.GetReadonlyRootfs(),
	}
	if len(made.Args) == 0 {
		made.Args = image.Entrypoint
	}
	made.Args = append(slices.Clone(made.Args), config.GetArgs()...)
	for _, one := range config.GetEnvs() {
		made.Env = append(made.Env, one.GetKey()+"="+string(one.GetValue()))
	}
	if config.GetWorkingDir() != "" {
		made.Folder = config.GetWorkingDir()
	}
	for _, group := range context.GetSupplementalGroups() {
		made.Groups = append(made.Groups, int(group))
	}
	if slices.Contains(context.GetCapabilities().GetDropCapabilities(), "ALL") {
		made.Kept = nil
	}
	made.Kept = append(slices.Clone(made.Kept), context.GetCapabilities().GetAddCapabilities()...)
	made.Kept = slices.DeleteFunc(made.Kept, func(name string) bool {
		return slices.Contains(context.GetCapabilities().GetDropCapabilities(), name)
	})
	if of.sandbox.holder != nil {
		made.Network = fmt.Sprintf("/proc/%d/ns/net", of.sandbox.holder.Process.Pid)
	}
	propagation := map[cri.MountPropagation]uintptr{
		cri.MountPropagation_PROPAGATION_PRIVATE:           unix.MS_PRIVATE,
		cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: unix.MS_SLAVE,
		cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:     unix.MS_SHARED,
	}
	for _, one := range config.GetMounts() {
		made.Mounts = append(made.Mounts, mount{
			From: one.GetHostPath(), To: one.GetContainerPath(), ReadOnly: one.GetReadonly(),
			Propagation: propagation[one.GetPropagation()],
		})
	}
	return made
}

func (s *service) StartContainer(_ context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	of := s.containers[request.GetContainerId()]
	if of == nil {
		return nil, status.Errorf(codes.NotFound, "no container %s", request.GetContainerId())
	}
	made := s.plan(of)
	if err := s.startContainer(of, made); err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	return &cri.StartContainerResponse{}, nil
}

func (s *service) startContainer(of *container, made plan) error {
	if err := os.MkdirAll(made.Root, 0o755); err != nil {
		return err
	}
	log, err := openLog(s.logPath(of))
	if err != nil {
		return err
	}
	command := self(unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, "container")
	written, finish, err := log.connect(command)
	if err != nil {
		log.Close()
		return err
	}
	runs := false
	defer func() {
		finish()
		if !runs {
			log.Close()
		}
	}()
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	failure, told, err := os.Pipe()
	if err != nil {
		return err
	}
	defer failure.Close()
	command.ExtraFiles = []*os.File{told}
	err = s.start(command)
	told.Close()
	finish()
	if err != nil {
		return err
	}
	of.process, of.started = command.Process, time.Now().UnixNano()
	if err := json.NewEncoder(input).Encode(made); err != nil {
		return err
	}
	input.Close()
	// Until the program runs: kubelet, and with it the test, then finds the container as it will be.
	if why, _ := io.ReadAll(failure); len(why) != 0 {
		_ = command.Wait()
		of.process, of.finished, of.exitCode = nil, time.Now().UnixNano(), 128
		close(of.ended)
		return fmt.Errorf("%s", why)
	}
	of.log, runs = log, true
	s.announce("running", of, command.Process.Pid)
	go func() {
		_ = command.Wait()
		// Its first process ends last in its namespace: nobody writes any more.
		written.Wait()
		log.Close()
		s.mutex.Lock()
		defer s.mutex.Unlock()
		of.finished = time.Now().UnixNano()
		of.exitCode = int32(command.ProcessState.ExitCode())
		if ended, is := command.ProcessState.Sys().(syscall.WaitStatus); is && ended.Signaled() {
			of.exitCode = 128 + int32(ended.Signal())
		}
		_ = os.Remove(made.Root)
		s.announce("ended", of, int(of.exitCode))
		close(of.ended)
	}()
	return nil
}

func (s *service) logPath(of *container) string {
	return filepath.Join(of.sandbox.config.GetLogDirectory(), of.config.GetLogPath())
}

// announce writes for the test which process is a pod's container now, and how the last one ended:
// STATE/running/POD/CONTAINER and STATE/ended/POD/CONTAINER.
func (s *service) announce(what string, of *container, number int) {
	folder := filepath.Join(s.node.State, what, of.sandbox.config.GetMetadata().GetName())
	_ = os.MkdirAll(folder, 0o755)
	part := filepath.Join(folder, "."+of.id)
	_ = os.WriteFile(part, []byte(strconv.Itoa(number)), 0o644)
	_ = os.Rename(part, filepath.Join(folder, of.config.GetMetadata().GetName()))
}

// stopContainer asks the program to end, and kills it when time is up.
func (s *service) stopContainer(of *container, grace time.Duration) {
	s.mutex.Lock()
	process := of.process
	s.mutex.Unlock()
	if process == nil {
		return
	}
	if grace > 0 {
		_ = process.Signal(syscall.SIGTERM)
		select {
		case <-of.ended:
			return
		case <-time.After(grace):
		}
	}
	_ = process.Kill()
	<-of.ended
}

func (s *service) StopContainer(_ context.Context, request *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	s.mutex.Lock()
	of := s.containers[request.GetContainerId()]
	s.mutex.Unlock()
	if of != nil {
		s.stopContainer(of, time.Duration(request.GetTimeout())*time.Second)
	}
	return &cri.StopContainerResponse{}, nil
}

func (s *service) RemoveContainer(_ context.Context, request *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	s.mutex.Lock()
	of := s.containers[request.GetContainerId()]
	s.mutex.Unlock()
	if of != nil {
		s.stopContainer(of, 0)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.containers, request.GetContainerId())
	return &cri.RemoveContainerResponse{}, nil
}

func (of *container) state() cri.ContainerState {
	switch {
	case of.finished != 0:
		return cri.ContainerState_CONTAINER_EXITED
	case of.started != 0:
		return cri.ContainerState_CONTAINER_RUNNING
	}
	return cri.ContainerState_CONTAINER_CREATED
}

func (s *service) ListContainers(_ context.Context, request *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	filter := request.GetFilter()
	answer := &cri.ListContainersResponse{}
	for _, one := range s.containers {
		if filter.GetId() != "" && filter.GetId() != one.id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != one.sandbox.id ||
			filter.GetState() != nil && filter.GetState().GetState() != one.state() ||
			!hasLabels(one.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		answer.Containers = append(answer.Containers, &cri.Container{
			Id: one.id, PodSandboxId: one.sandbox.id, Metadata: one.config.GetMetadata(), Image: one.config.GetImage(),
			ImageRef: one.config.GetImage().GetImage(), State: one.state(), CreatedAt: one.created,
			Labels: one.config.GetLabels(), Annotations: one.config.GetAnnotations(),
		})
	}
	return answer, nil
}

func (s *service) ContainerStatus(_ context.Context, request *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	of := s.containers[request.GetContainerId()]
	if of == nil {
		return nil, status.Errorf(codes.NotFound, "no container %s", request.GetContainerId())
	}
	reason := ""
	if of.finished != 0 {
		reason = "Completed"
		if of.exitCode != 0 {
			reason = "Error"
		}
	}
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{
		Id: of.id, Metadata: of.config.GetMetadata(), State: of.state(), CreatedAt: of.created, StartedAt: of.started,
		FinishedAt: of.finished, ExitCode: of.exitCode, Image: of.config.GetImage(),
		ImageRef: of.config.GetImage().GetImage(), Reason: reason, Labels: of.config.GetLabels(),
		Annotations: of.config.GetAnnotations(), Mounts: of.config.GetMounts(), LogPath: s.logPath(of),
	}}, nil
}

func (s *service) UpdateContainerResources(context.Context, *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (s *service) ReopenContainerLog(_ context.Context, request *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	s.mutex.Lock()
	of := s.containers[request.GetContainerId()]
	s.mutex.Unlock()
	if of == nil || of.log == nil {
		return nil, status.Errorf(codes.NotFound, "no running container %s", request.GetContainerId())
	}
	return &cri.ReopenContainerLogResponse{}, of.log.reopen()
}

func (s *service) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

func (s *service) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func (s *service) imageNamed(name string) *cri.Image {
	if _, known := s.node.Images[name]; !known {
		return nil
	}
	return &cri.Image{Id: name, RepoTags: []string{name}, Size: 1}
}

func (s *service) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	answer := &cri.ListImagesResponse{}
	for name := range s.node.Images {
		answer.Images = append(answer.Images, s.imageNamed(name))
	}
	return answer, nil
}

func (s *service) ImageStatus(_ context.Context, request *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return &cri.ImageStatusResponse{Image: s.imageNamed(request.GetImage().GetImage())}, nil
}

func (s *service) PullImage(_ context.Context, request *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	name := request.GetImage().GetImage()
	if s.imageNamed(name) == nil {
		known := slices.Sorted(maps.Keys(s.node.Images))
		return nil, status.Errorf(codes.NotFound, "no image %s: containers are processes of this machine, and the images are %s", name, strings.Join(known, ", "))
	}
	return &cri.PullImageResponse{ImageRef: name}, nil
}

func (s *service) RemoveImage(context.Context, *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	return &cri.RemoveImageResponse{}, nil
}

func (s *service) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{}, nil
}
