// A node of a cluster on one machine: namespaces of its own for network, mounts and host name, a kubelet in them, and the
// container runtime behind that kubelet. A container is a process in namespaces, on a root that holds its image's files
// and the volumes that the kubelet names.
//
// Applied of a container's specification: program, arguments, environment, mounts with their propagation, user and
// groups, capabilities, no_new_privs, read-only root; namespaces of mounts, processes and IPC, and of network and host
// name unless it shares the node's network. Not applied: seccomp, AppArmor, SELinux, masked paths, cgroups and with them
// resources, devices. A privileged container differs in its capabilities only.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// settings of a node, as the test writes them.
type settings struct {
	// Its name.
	Name string `json:"name"`
	// The kubelet's folder as the test sees it. In the node it is /var/lib/kubelet, and mounts below it show in both.
	KubeletFolder string `json:"kubeletFolder"`
	// What the runtime keeps: its socket, roots of containers, and a file for each running container.
	State string `json:"state"`
	// The bridge of the cluster's network, in the network namespace that the node is started from.
	Bridge string `json:"bridge"`
	// The bridge's address.
	Gateway string `json:"gateway"`
	// The node's address.
	Address string `json:"address"`
	// The first three bytes of the addresses of its pods, such as 10.244.1.
	Pods string `json:"pods"`
	// What is in an image, by its name.
	Images map[string]image `json:"images"`
	// The kubelet and its arguments.
	Kubelet []string `json:"kubelet"`
}

// image is the content of a container's root.
type image struct {
	// The program, and arguments before those of the container.
	Entrypoint []string `json:"entrypoint"`
	// Folders and files of this machine, by their path in the container. They are read-only.
	Files map[string]string `json:"files"`
}

// The kernel kills a child when the thread that started it ends. The main thread ends last: it starts all of them.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: node up SETTINGS-FILE, where a bridge is")
	}
	switch args[0] {
	case "up":
		return withSettings(args[1:], up)
	// What follows is started by the program itself.
	case "serve":
		return withSettings(args[1:], serve)
	case "sandbox":
		return holdSandbox(args[1:])
	case "container":
		return becomeContainer()
	case "exec":
		return runInContainer()
	case "idle":
		return idle()
	}
	return fmt.Errorf("no such command: %s", args[0])
}

func withSettings(args []string, do func(string, *settings) error) error {
	if len(args) != 1 {
		return fmt.Errorf("one file of settings is needed")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var given settings
	if err := json.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return do(args[0], &given)
}
