package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// execution is what a process must do to run a program in a container that is there; it reads it from its fourth file.
type execution struct {
	plan
	// The container's first process.
	Process  int  `json:"process"`
	Terminal bool `json:"terminal"`
}

// streamsAt is the loopback address of the node at a free port: only the kubelet asks there.
const streamsAt = "127.0.0.1:0"

// executions is where runInContainer reads its orders.
const executions = 3

// startStreams serves in the node's network.
func startStreams(of *service) (streaming.Server, error) {
	config := streaming.DefaultConfig
	config.Addr = streamsAt
	server, err := streaming.NewServer(config, streams{of})
	if err != nil {
		return nil, err
	}
	go func() {
		if err := server.Start(true); err != nil {
			fmt.Fprintln(os.Stderr, "no kubectl exec on this node:", err)
		}
	}()
	return server, nil
}

// running gives a container that runs, and its first process.
func (s *service) running(id string) (*container, int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	of := s.containers[id]
	if of == nil || of.process == nil || of.finished != 0 {
		return nil, 0, status.Errorf(codes.NotFound, "no container %s runs", id)
	}
	return of, of.process.Pid, nil
}

func (s *service) Exec(_ context.Context, request *cri.ExecRequest) (*cri.ExecResponse, error) {
	if _, _, err := s.running(request.GetContainerId()); err != nil {
		return nil, err
	}
	return s.streams.GetExec(request)
}

func (s *service) PortForward(_ context.Context, request *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return s.streams.GetPortForward(request)
}

func (s *service) Attach(context.Context, *cri.AttachRequest) (*cri.AttachResponse, error) {
	return nil, status.Error(codes.Unimplemented, "no attach: a container's input is closed; use kubectl exec")
}

// ExecSync is what probes and hooks of kind exec ask for.
func (s *service) ExecSync(ctx context.Context, request *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if seconds := request.GetTimeout(); seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	var output, errors strings.Builder
	err := s.execute(ctx, request.GetContainerId(), request.GetCmd(), nil, &output, &errors, nil)
	answer := &cri.ExecSyncResponse{Stdout: []byte(output.String()), Stderr: []byte(errors.String())}
	if ended, is := err.(utilexec.CodeExitError); is {
		answer.ExitCode = int32(ended.Code)
		return answer, nil
	}
	if ctx.Err() != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "%v has not ended within %d s", request.GetCmd(), request.GetTimeout())
	}
	return answer, err
}

// streams is the runtime as its streaming server sees it.
type streams struct{ *service }

func (s streams) Exec(ctx context.Context, id string, line []string, in io.Reader, out, errors io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if !tty {
		return s.execute(ctx, id, line, in, out, errors, nil)
	}
	terminal, other, err := openTerminal()
	if err != nil {
		return fmt.Errorf("no terminal: %w", err)
	}
	defer terminal.Close()
	go func() {
		for size := range resize {
			now := unix.Winsize{Row: size.Height, Col: size.Width}
			_ = unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &now)
		}
	}()
	if in != nil {
		go io.Copy(terminal, in)
	}
	shown := make(chan struct{})
	go func() {
		// It ends with EIO when the last process has closed the terminal.
		_, _ = io.Copy(out, terminal)
		close(shown)
	}()
	err = s.execute(ctx, id, line, nil, nil, nil, other)
	<-shown
	return err
}

func (s streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.New("no attach: a container's input is closed; use kubectl exec")
}

// PortForward connects a stream with a port of a pod.
func (s streams) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s.mutex.Lock()
	of := s.sandboxes[id]
	network := ""
	if of != nil && of.holder != nil {
		network = fmt.Sprintf("/proc/%d/ns/net", of.holder.Process.Pid)
	}
	s.mutex.Unlock()
	if of == nil {
		return status.Errorf(codes.NotFound, "no sandbox %s", id)
	}
	connection, err := dialIn(network, fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	var both sync.WaitGroup
	both.Add(1)
	go func() {
		defer both.Done()
		_, _ = io.Copy(stream, connection)
		stream.Close()
	}()
	_, _ = io.Copy(connection, stream)
	connection.(*net.TCPConn).CloseWrite()
	both.Wait()
	return nil
}

// dialIn connects in another network namespace, or in this one if none is named.
func dialIn(network, address string) (net.Conn, error) {
	if network == "" {
		return net.Dial("tcp", address)
	}
	type answer struct {
		connection net.Conn
		err        error
	}
	answers := make(chan answer)
	go func() {
		// Never unlocked: this thread has another network, and ends with its function.
		runtime.LockOSThread()
		file, err := os.Open(network)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			answers <- answer{nil, err}
			return
		}
		connection, err := net.Dial("tcp", address)
		answers <- answer{connection, err}
	}()
	got := <-answers
	return got.connection, got.err
}

// openTerminal gives the two ends of a new pseudo-terminal (source: pts(4)).
func openTerminal() (*os.File, *os.File, error) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0)
	}
	var other *os.File
	if err == nil {
		other, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		terminal.Close()
		return nil, nil, err
	}
	return terminal, other, nil
}

// execute runs a program in a container to its end. With a terminal, that is all its input and output, and is closed here.
func (s *service) execute(ctx context.Context, id string, line []string, in io.Reader, out, errors io.Writer, terminal *os.File) error {
	command := self(0, "exec")
	command.Stdout, command.Stderr = out, errors
	if terminal != nil {
		defer terminal.Close()
		command.Stdin, command.Stdout, command.Stderr = terminal, terminal, terminal
	}
	of, process, err := s.running(id)
	if err != nil {
		return err
	}
	orders := execution{plan: s.plan(of), Process: process, Terminal: terminal != nil}
	orders.Args = line
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	command.ExtraFiles = []*os.File{read}
	// Not the command's own input: its end would be waited for, and a person may never end it.
	var input io.WriteCloser
	if in != nil {
		if input, err = command.StdinPipe(); err != nil {
			read.Close()
			return err
		}
	}
	err = s.start(command)
	read.Close()
	if err != nil {
		return err
	}
	if terminal != nil {
		terminal.Close()
	}
	if input != nil {
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			// It kills the program.
			_ = command.Process.Signal(syscall.SIGTERM)
		case <-ended:
		}
	}()
	if err := json.NewEncoder(write).Encode(orders); err != nil {
		return err
	}
	write.Close()
	err = command.Wait()
	if command.ProcessState == nil || command.ProcessState.Success() {
		return err
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", exitCode(command.ProcessState)), Code: exitCode(command.ProcessState)}
}

// exitCode as a shell gives it: 128 and the number of the signal that ended a process.
func exitCode(of *os.ProcessState) int {
	if ended, is := of.Sys().(syscall.WaitStatus); is && ended.Signaled() {
		return 128 + int(ended.Signal())
	}
	return of.ExitCode()
}

// runInContainer enters the namespaces of a container, runs a program there with what the container may, and ends as that
// does.
func runInContainer() error {
	unix.CloseOnExec(executions)
	var of execution
	if err := json.NewDecoder(os.NewFile(executions, "orders")).Decode(&of); err != nil {
		return err
	}
	if err := of.enter(); err != nil {
		return fmt.Errorf("the container cannot be entered: %w", err)
	}
	if err := of.restrict(); err != nil {
		return fmt.Errorf("the program cannot be restricted: %w", err)
	}
	program, err := findProgram(of.Args[0], of.Env)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		// As a shell says of a command that is not there.
		os.Exit(127)
	}
	attributes := &os.ProcAttr{
		Env:   of.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		// Without a signal for this process's death: in the other namespace the parent's id is 0, and Go takes that for a
		// parent that is dead already. The program ends with its container, or is killed below.
		Sys: &syscall.SysProcAttr{Setsid: of.Terminal, Setctty: of.Terminal},
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	child, err := os.StartProcess(program, of.Args, attributes)
	if err != nil {
		return err
	}
	go func() {
		<-stopped
		_ = child.Kill()
	}()
	state, err := child.Wait()
	if err != nil {
		return err
	}
	os.Exit(exitCode(state))
	return nil
}

// enter moves this thread into the container. Processes that it starts are in the container's namespace of processes.
func (of *execution) enter() error {
	var files []*os.File
	// That of mounts comes last: what is opened after it is the container's.
	for _, name := range []string{"ipc", "uts", "net", "pid", "mnt"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", of.Process, name))
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	// Its working folder and root, which other threads share.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for _, file := range files {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file.Name()), err)
		}
	}
	return os.Chdir(of.Folder)
}

// findProgram looks for a program in the container's own path.
func findProgram(name string, environment []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, variable := range environment {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		candidate := filepath.Join(folder, name)
		if found, err := os.Stat(candidate); err == nil && !found.IsDir() && found.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", &exec.Error{Name: name, Err: fmt.Errorf("not found in %s", path)}
}
