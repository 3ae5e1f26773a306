package dashboards

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// patience is what only a hang reaches.
const patience = 2 * time.Minute

// Fleet is the provider of a cluster at work: `lazuli up`, and beside it what that has not: a controller and a node plugin
// that serve file shares too, and a second replica of the cloud controllers, which waits for the Lease and answers reviews.
type Fleet struct {
	folder    string
	azure     string
	cluster   string
	broker    string
	reviewer  string
	processes []*process
	targets   []target
	web       *http.Client
}

// target is a place to scrape, with the labels that the ServiceMonitors of the chart give it.
type target struct {
	url    string
	labels map[string]string
}

type process struct {
	name    string
	command *exec.Cmd
	log     *os.File
}

// StartFleet starts it. Files and logs go to folder, which must be short: sockets are in it.
func StartFleet(binary, folder string) (*Fleet, error) {
	fleet := &Fleet{folder: folder, web: &http.Client{
		Timeout: patience,
		// Nobody has signed the certificate of the broker and the webhooks.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	if err := fleet.start(binary); err != nil {
		return nil, errors.Join(err, fleet.Stop())
	}
	return fleet, nil
}

func (f *Fleet) path(name string) string { return filepath.Join(f.folder, name) }

func (f *Fleet) start(binary string) error {
	ports, err := freePorts(9)
	if err != nil {
		return err
	}
	// `lazuli up` serves the metrics of its four processes one after another.
	rows, err := f.up(binary, fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		return err
	}
	f.azure, f.cluster = strings.TrimSuffix(rows["page"], "/"), rows["Kubernetes API"]
	f.addTarget(rows["metrics of csi-controller"], "controller", "metrics", "lazuli", 0)
	f.addTarget(rows["metrics of cloud-controllers"], "controller", "cloud-metrics", "cloud-controllers", 0)
	f.addTarget(rows["metrics of csi-node node-0"], "node", "metrics", "lazuli", 0)
	f.addTarget(rows["metrics of csi-node node-1"], "node", "metrics", "lazuli", 1)

	certificate, key, err := f.certificate()
	if err != nil {
		return err
	}
	f.broker, f.reviewer = fmt.Sprintf("https://127.0.0.1:%d", ports[7]), fmt.Sprintf("https://127.0.0.1:%d", ports[8])
	cluster := "--kubeconfig=" + f.path("up/kubeconfig")
	cloud := []string{"--cloud-config=" + f.path("up/azure.json"), "--cloud-config-secret-name=", cluster}
	controller := append([]string{"csi-controller", "--endpoint=unix://" + f.path("c.sock"), "--file-endpoint=unix://" + f.path("f.sock"),
		fmt.Sprintf("--key-broker-endpoint=127.0.0.1:%d", ports[7]), "--key-broker-certificate=" + certificate, "--key-broker-key=" + key}, cloud...)
	node := []string{"csi-node", "--node-id=node-0", cluster, "--imds-url=" + f.azure + "/_imds/node-0", "--state-dir=" + f.path("further"),
		"--endpoint=unix://" + f.path("n.sock"), "--file-endpoint=unix://" + f.path("nf.sock"), "--secret-access=cluster"}
	replica := append([]string{"cloud-controllers", fmt.Sprintf("--webhook-address=127.0.0.1:%d", ports[8]),
		"--webhook-certificate=" + certificate, "--webhook-key=" + key}, cloud...)
	for at, one := range []struct {
		component, endpoint, container string
		arguments                      []string
	}{
		{"controller", "metrics", "lazuli", controller},
		{"node", "metrics", "lazuli", node},
		{"controller", "cloud-metrics", "cloud-controllers", replica},
	} {
		address := fmt.Sprintf("127.0.0.1:%d", ports[4+at])
		// These answer in the older text format, which --go-metrics asks for.
		arguments := append(one.arguments, "--metrics-endpoint="+address, "--metrics-authentication=none", "--go-metrics")
		if _, err := f.run(one.arguments[0], nil, binary, arguments...); err != nil {
			return err
		}
		f.addTarget("http://"+address+"/metrics", one.component, one.endpoint, one.container, 9)
	}
	for _, socket := range []string{"f.sock", "nf.sock"} {
		if err := f.wait("socket "+socket, func() error { _, err := os.Stat(f.path(socket)); return err }); err != nil {
			return err
		}
	}
	return f.wait("answers to all scrapes", func() error { _, err := f.Scrape(); return err })
}

// certificate makes one for the key broker and the webhooks.
func (f *Fleet) certificate() (certificate, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	certificate, key = f.path("tls.crt"), f.path("tls.key")
	write := func(path, kind string, bytes []byte) error {
		return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
	}
	return certificate, key, errors.Join(write(certificate, "CERTIFICATE", public), write(key, "PRIVATE KEY", secret))
}

// freePorts finds ports that follow one another and that nobody uses.
func freePorts(count int) ([]int, error) {
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners, ports := []net.Listener{first}, []int{first.Addr().(*net.TCPAddr).Port}
		for len(ports) < count {
			next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]+len(ports)))
			if err != nil {
				break
			}
			listeners, ports = append(listeners, next), append(ports, ports[0]+len(ports))
		}
		for _, listener := range listeners {
			_ = listener.Close()
		}
		if len(ports) == count {
			return ports, nil
		}
	}
	return nil, errors.New("no ports that follow one another are free")
}

func (f *Fleet) addTarget(url, component, endpoint, container string, pod int) {
	service := "lazuli-" + component + "-metrics"
	f.targets = append(f.targets, target{url: url, labels: map[string]string{
		"job": service, "service": service, "namespace": "kube-system", "endpoint": endpoint, "container": container,
		"pod": fmt.Sprintf("lazuli-%s-%d", component, pod), "instance": strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics"),
	}})
}

// run starts a process. Its standard output goes to the log, or to lines.
func (f *Fleet) run(name string, lines func(io.Reader) error, binary string, arguments ...string) (*process, error) {
	log, err := os.Create(f.path(name + ".log"))
	if err != nil {
		return nil, err
	}
	command := exec.Command(binary, arguments...)
	// Nothing but the arguments counts.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	command.Stderr, command.Stdout = log, log
	var output io.Reader
	if lines != nil {
		command.Stdout = nil
		if output, err = command.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	started := &process{name: name, command: command, log: log}
	f.processes = append(f.processes, started)
	if lines != nil {
		return started, lines(output)
	}
	return started, nil
}

// up starts `lazuli up`, and gives the rows of what it prints at its start.
func (f *Fleet) up(binary, metrics string) (map[string]string, error) {
	rows, serving := map[string]string{}, make(chan error, 1)
	read := func(output io.Reader) error {
		go func() {
			lines := bufio.NewScanner(output)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "What happens") {
					serving <- nil
					_, _ = io.Copy(io.Discard, output) // keep the pipe empty
					return
				}
				if name, value, is := strings.Cut(strings.TrimSpace(lines.Text()), "  "); is {
					rows[name] = strings.TrimSpace(value)
				}
			}
			serving <- errors.New("lazuli up ended before it served")
		}()
		select {
		case err := <-serving:
			return err
		case <-time.After(patience):
			return errors.New("lazuli up does not serve")
		}
	}
	_, err := f.run("up", read, binary, "up", "--nodes=2", "--latency=none", "--hypervisor=none", "--folder="+f.path("up"),
		"--listen=127.0.0.1:0", "--api-listen=127.0.0.1:0", "--metrics-listen="+metrics)
	return rows, err
}

func (f *Fleet) wait(what string, holds func() error) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = holds(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no %s: %w", what, err)
}

// Stop ends all processes, the newest first, and waits for them.
func (f *Fleet) Stop() error {
	var failed error
	for at := len(f.processes) - 1; at >= 0; at-- {
		one := f.processes[at]
		_ = one.command.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = one.command.Process.Kill() })
		if err := one.command.Wait(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", one.name, err))
		}
		kill.Stop()
		_ = one.log.Close()
	}
	f.processes = nil
	return failed
}

// Scrape asks every process for its metrics, with the header that Prometheus sends.
func (f *Fleet) Scrape() ([]Page, error) {
	var pages []Page
	for _, one := range f.targets {
		request, err := http.NewRequest(http.MethodGet, one.url, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1")
		body, answer, err := f.ask(request)
		if err != nil {
			return nil, err
		}
		pages = append(pages, Page{Target: one.labels, ContentType: answer.Header.Get("Content-Type"), Body: body})
	}
	return pages, nil
}

func (f *Fleet) ask(request *http.Request) ([]byte, *http.Response, error) {
	answer, err := f.web.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.500s", request.Method, request.URL, answer.Status, body)
	}
	return body, answer, err
}

// send sends JSON and gives the object that comes back.
func (f *Fleet) send(method, url string, object any) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(method, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	body, _, err := f.ask(request)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	if len(bytes.TrimSpace(body)) > 0 && bytes.TrimSpace(body)[0] == '{' {
		err = json.Unmarshal(body, &answer)
	}
	return answer, err
}

// connect opens a CSI socket.
func (f *Fleet) connect(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+f.path(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// mounted is a volume with a file system for one node.
var mounted = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// within gives each call the time that a hang alone takes.
func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
