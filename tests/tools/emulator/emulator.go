// Package emulator runs a `lazuli emulator` with TLS for tests in Go. LAZULI_BIN names the binary.
package emulator

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// Emulator is a running process.
type Emulator struct {
	// URL is its address over TLS, without a slash at the end.
	URL string
	// Config is the file with the cloud configuration for its clients.
	Config string
	// CA is the file with the certificate of its authority.
	CA      string
	command *exec.Cmd
}

// Start runs an emulator that keeps its files in folder, with further arguments, and waits until it has named
// its address. Its log goes to log.
func Start(folder string, log io.Writer, arguments ...string) (*Emulator, error) {
	binary := os.Getenv("LAZULI_BIN")
	if binary == "" {
		return nil, errors.New("LAZULI_BIN names no binary")
	}
	keys := filepath.Join(folder, "tls")
	started := &Emulator{Config: filepath.Join(folder, "azure.json"), CA: filepath.Join(keys, "ca.pem")}
	started.command = exec.Command(binary, append([]string{"emulator",
		"--listen", "127.0.0.1:0", "--tls", "127.0.0.1:0", "--tls-dir", keys,
		"--retry-after", "0", "--azure-json", started.Config}, arguments...)...)
	started.command.Stderr = log
	output, err := started.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := started.command.Start(); err != nil {
		return nil, err
	}
	if started.URL, err = httpsAddress(output); err != nil {
		started.Stop()
		return nil, err
	}
	return started, nil
}

// Stop ends the emulator and waits for its end.
func (e *Emulator) Stop() {
	_ = e.command.Process.Signal(syscall.SIGTERM)
	_ = e.command.Wait()
}

// httpsAddress reads what the emulator prints until it has named its TLS address.
func httpsAddress(output io.Reader) (string, error) {
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		address := regexp.MustCompile(`https://[\w.-]+:\d+`)
		for lines.Scan() {
			if url := address.FindString(lines.Text()); url != "" {
				found <- url
				break
			}
		}
		for lines.Scan() { // keep the pipe empty
		}
		close(found)
	}()
	select {
	case url, ok := <-found:
		if !ok {
			return "", errors.New("the emulator ended without naming its TLS address")
		}
		return url, nil
	case <-time.After(time.Minute):
		return "", errors.New("the emulator did not start")
	}
}
