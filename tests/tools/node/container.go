package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// plan is what a process must do to become a container; it reads it from its standard input.
type plan struct {
	Root       string            `json:"root"`
	Files      map[string]string `json:"files"`
	Mounts     []mount           `json:"mounts"`
	Args       []string          `json:"args"`
	Env        []string          `json:"env"`
	Folder     string            `json:"folder"`
	HostName   string            `json:"hostName"`
	Network    string            `json:"network"`
	User       int               `json:"user"`
	Group      int               `json:"group"`
	Groups     []int             `json:"groups"`
	Kept       []string          `json:"kept"`
	Privileged bool              `json:"privileged"`
	NoNewPrivs bool              `json:"noNewPrivs"`
	ReadOnly   bool              `json:"readOnly"`
}

// mount is a volume of a container.
type mount struct {
	From        string  `json:"from"`
	To          string  `json:"to"`
	ReadOnly    bool    `json:"readOnly"`
	Propagation uintptr `json:"propagation"`
}

// capabilities by number (source: linux/capability.h).
var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// usualCapabilities has a container that asks for nothing else (source: containerd, defaultUnixCaps).
var usualCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP
	NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE`)

// failures is where the runtime reads why a container did not start. It closes when the container's program runs.
const failures = 3

// becomeContainer runs in new namespaces, as their first process, and ends as the container's program.
func becomeContainer() error {
	unix.CloseOnExec(failures)
	err := startProgram()
	fmt.Fprint(os.NewFile(failures, "failures"), err)
	return err
}

func startProgram() error {
	var of plan
	if err := json.NewDecoder(os.Stdin).Decode(&of); err != nil {
		return err
	}
	if err := of.prepare(); err != nil {
		return fmt.Errorf("the container cannot start: %w", err)
	}
	if err := of.restrict(); err != nil {
		return fmt.Errorf("the container cannot be restricted: %w", err)
	}
	program, err := findProgram(of.Args[0], of.Env)
	if err != nil {
		return err
	}
	err = unix.Exec(program, of.Args, of.Env)
	return fmt.Errorf("%s: %w", program, err)
}

// prepare gives the process its network, its name and its root.
func (of *plan) prepare() error {
	if of.Network != "" {
		network, err := os.Open(of.Network)
		if err != nil {
			return err
		}
		defer network.Close()
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("the pod's network: %w", err)
		}
		if err := unix.Sethostname([]byte(of.HostName)); err != nil {
			return fmt.Errorf("the host name: %w", err)
		}
	}
	if err := unix.Mount("root", of.Root, "tmpfs", 0, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("%s: %w", of.Root, err)
	}
	// The root's own parent is no shared mount, so that nothing of this shows in the node.
	if err := unix.Mount("", of.Root, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := of.fillRoot(); err != nil {
		return err
	}
	before := filepath.Join(of.Root, ".before")
	if err := os.Mkdir(before, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(of.Root, before); err != nil {
		return fmt.Errorf("the change of the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// Slaves first: what is unmounted here stays mounted in the node.
	if err := unix.Mount("", "/.before", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Unmount("/.before", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the former root: %w", err)
	}
	if err := os.Remove("/.before"); err != nil {
		return err
	}
	if of.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("the root cannot be made read-only: %w", err)
		}
	}
	return os.Chdir(of.Folder)
}

func (of *plan) fillRoot() error {
	at := func(path string) string { return filepath.Join(of.Root, path) }
	for _, folder := range []string{"/proc", "/dev"} {
		if err := os.Mkdir(at(folder), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", at("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for path, from := range of.Files {
		if err := bind(mount{From: from, To: at(path), ReadOnly: true, Propagation: unix.MS_PRIVATE}); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(of.Mounts, func(one mount) bool { return one.To == "/dev" }) {
		for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
			one := mount{From: "/dev/" + device, To: at("/dev/" + device), Propagation: unix.MS_PRIVATE}
			if err := bind(one); err != nil {
				return err
			}
		}
	}
	// A folder before what is in it.
	sort.SliceStable(of.Mounts, func(a, b int) bool {
		return strings.Count(of.Mounts[a].To, "/") < strings.Count(of.Mounts[b].To, "/")
	})
	for _, one := range of.Mounts {
		if one.To == "/dev/termination-log" {
			// The chart's containers write none, and the node's /dev is no place for a new file.
			continue
		}
		one.To = at(one.To)
		if err := bind(one); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a folder or a file at a path, which is made.
func bind(one mount) error {
	found, err := os.Stat(one.From)
	if err != nil {
		return err
	}
	if found.IsDir() {
		err = os.MkdirAll(one.To, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(one.To), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(one.To, os.O_CREATE, 0o644); err == nil {
			file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(one.From, one.To, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("%s on %s: %w", one.From, one.To, err)
	}
	if err := unix.Mount("", one.To, "", one.Propagation|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("the propagation of %s: %w", one.To, err)
	}
	if !one.ReadOnly {
		return nil
	}
	// Options that are not repeated would be dropped.
	var now unix.Statfs_t
	if err := unix.Statfs(one.To, &now); err != nil {
		return err
	}
	flags := uintptr(now.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_RELATIME)
	if err := unix.Mount("", one.To, "", flags|unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("%s cannot be made read-only: %w", one.To, err)
	}
	return nil
}

// restrict takes away what the container's program must not have. It holds for this thread, which becomes the program.
func (of *plan) restrict() error {
	for number, name := range capabilities {
		if of.Privileged || slices.Contains(of.Kept, name) {
			continue
		}
		// EINVAL: the kernel does not know it. EPERM cannot be, for setpcap is there until the last of them.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0)
		if err != nil && err != unix.EINVAL {
			return fmt.Errorf("capability %s: %w", name, err)
		}
	}
	if err := syscall.Setgroups(of.Groups); err != nil {
		return err
	}
	if err := syscall.Setresgid(of.Group, of.Group, of.Group); err != nil {
		return err
	}
	if err := syscall.Setresuid(of.User, of.User, of.User); err != nil {
		return err
	}
	// A change of the user clears it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if of.NoNewPrivs {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}
