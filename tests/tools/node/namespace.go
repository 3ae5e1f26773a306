package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kubeletFolder is the usual one, which the chart names.
const kubeletFolder = "/var/lib/kubelet"

// self starts this program again in namespaces of its own. It ends with the thread that starts it.
func self(namespaces uintptr, args ...string) *exec.Cmd {
	command := exec.Command("/proc/self/exe", args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	return command
}

// commands runs programs one after another, each given as a line of words.
func commands(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, output)
		}
	}
	return nil
}

// up makes the node's namespaces, connects them with the bridge, and lives as long as the node.
func up(file string, node *settings) error {
	for _, folder := range []string{node.KubeletFolder, node.State} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	// Shared: what a plugin mounts below it shows to the test.
	if err := unix.Mount(node.KubeletFolder, node.KubeletFolder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s on itself: %w", node.KubeletFolder, err)
	}
	if err := unix.Mount("", node.KubeletFolder, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", node.KubeletFolder, err)
	}
	child := self(unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWUTS, "serve", file)
	connected, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	link := "v-" + node.Name
	if err := commands(
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", link, child.Process.Pid),
		fmt.Sprintf("ip link set %s master %s up", link, node.Bridge),
	); err != nil {
		return err
	}
	connected.Close()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	go func() {
		<-stopped
		child.Process.Kill()
	}()
	return child.Wait()
}

// serve is the node: it has its namespaces, and waits until it is connected.
func serve(_ string, node *settings) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("the pipe should only be closed")
	}
	// Containers on the node's network have its host name, and CSI sidecars sign their Leases with it: two nodes of one
	// name would both lead.
	if err := unix.Sethostname([]byte(node.Name)); err != nil {
		return fmt.Errorf("the host name: %w", err)
	}
	if err := commands(
		"ip link set lo up",
		"ip address add "+node.Address+"/16 dev eth0",
		"ip link set eth0 up",
		"ip route add default via "+node.Gateway,
		"ip link add pods type bridge",
		"ip address add "+node.Pods+".1/24 dev pods",
		"ip link set pods up",
	); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	if err := mountKubeletFolder(node); err != nil {
		return err
	}
	service, err := startRuntime(node)
	if err != nil {
		return err
	}
	kubelet := exec.Command(node.Kubelet[0], node.Kubelet[1:]...)
	kubelet.Stdout, kubelet.Stderr = os.Stdout, os.Stderr
	kubelet.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := kubelet.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- kubelet.Wait() }()
	for {
		select {
		case start := <-service.starts:
			start()
		case err := <-ended:
			return fmt.Errorf("the kubelet has ended: %v", err)
		}
	}
}

// mountKubeletFolder puts the kubelet's folder where it usually is, in this mount namespace alone.
func mountKubeletFolder(node *settings) error {
	// What others mount and unmount on this machine still comes here; nothing goes back, but from the kubelet's folder.
	points, err := mountPoints()
	if err != nil {
		return err
	}
	for _, point := range points {
		if point == node.KubeletFolder {
			continue
		}
		// One that another mount hides cannot be named.
		_ = unix.Mount("", point, "", unix.MS_SLAVE, "")
	}
	if _, err := os.Stat(kubeletFolder); err != nil {
		if err := makeFolderInMemory(kubeletFolder); err != nil {
			return err
		}
	}
	if err := unix.Mount(node.KubeletFolder, kubeletFolder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", kubeletFolder, err)
	}
	return nil
}

// makeFolderInMemory makes a folder that shows in this mount namespace alone: its parent becomes one in memory, with all
// that was in it.
func makeFolderInMemory(folder string) error {
	parent := filepath.Dir(folder)
	before, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer before.Close()
	entries, err := before.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := unix.Mount("node", parent, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("%s: %w", parent, err)
	}
	for _, entry := range entries {
		to, from := filepath.Join(parent, entry.Name()), fmt.Sprintf("/proc/self/fd/%d/%s", before.Fd(), entry.Name())
		if entry.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err != nil {
				return err
			}
			err = os.Symlink(target, to)
			if err != nil {
				return err
			}
			continue
		}
		if err := bind(mount{From: from, To: to, Propagation: unix.MS_SLAVE}); err != nil {
			return err
		}
	}
	return os.Mkdir(folder, 0o755)
}

// mountPoints are those of this mount namespace (source: proc_pid_mountinfo(5)).
func mountPoints() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var points []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	return points, lines.Err()
}

// holdSandbox keeps a pod's network namespace until it is killed: ADDRESS/24 GATEWAY.
func holdSandbox(args []string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("the pipe should only be closed")
	}
	if err := commands(
		"ip link set lo up",
		"ip address add "+args[0]+" dev eth0",
		"ip link set eth0 up",
		"ip route add default via "+args[1],
	); err != nil {
		return err
	}
	fmt.Println("connected")
	select {}
}

// idle is the program of a container that does nothing until it is told to stop.
func idle() error {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	<-stopped
	return nil
}
