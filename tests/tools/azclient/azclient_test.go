// Package azclient drives the emulator with the client library of the Go drivers and of the Go cloud
// controllers: its reading of azure.json, discovery of endpoints, sign-in, entity-tag policy, retries
// and poller, and the requests that the disk driver makes with it.
//
// LAZULI_BIN names the binary to start. The library keeps its defaults. Two things are given to it:
// the authority's certificate, by SSL_CERT_FILE, and the address of login.microsoftonline.com, which
// the sign-in library asks about every authority that it does not know.
package azclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"lazuli/tests/emulator"
	peers "sigs.k8s.io/cloud-provider-azure/pkg/azclient"
)

// azureJSON is the cloud configuration as the Go peers read it.
type azureJSON struct {
	peers.ARMClientConfig
	peers.AzureAuthConfig
	peers.ClientFactoryConfig
	ResourceGroup string `json:"resourceGroup"`
	Location      string `json:"location"`
}

// azure is what all tests share: the library keeps its endpoints in globals, so there is one emulator.
var azure struct {
	clients  peers.ClientFactory
	fresh    func() (peers.ClientFactory, error)
	group    string
	location string
	url      string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "azclient")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(folder)
	stop, err := start(folder)
	defer stop()
	if err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

const scenario = `
virtualMachines:
- {name: "node-{}", count: 4, size: Standard_D8s_v3}
- {name: flex, size: Standard_D8s_v3}
`

// start runs an emulator and signs in to it, as a driver does when it starts.
func start(folder string) (func(), error) {
	stop := func() {}
	planned := filepath.Join(folder, "scenario.yaml")
	if err := os.WriteFile(planned, []byte(scenario), 0o600); err != nil {
		return stop, err
	}
	running, err := emulator.Start(folder, os.Stderr,
		"--page-size", "2", "--unverified", "put-needs-location=false", "--scenario", planned)
	if err != nil {
		return stop, err
	}
	stop, azure.url = running.Stop, running.URL
	if err := os.Setenv("SSL_CERT_FILE", running.CA); err != nil {
		return stop, err
	}

	var config azureJSON
	text, err := os.ReadFile(running.Config)
	if err != nil {
		return stop, err
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return stop, err
	}
	// The file names the plain address; credentials go over TLS only.
	config.ResourceManagerEndpoint = azure.url
	azure.group, azure.location = config.ResourceGroup, config.Location
	home, err := url.Parse(azure.url)
	if err != nil {
		return stop, err
	}
	auth, err := peers.NewAuthProvider(&config.ARMClientConfig, &config.AzureAuthConfig,
		peers.WithClientOptionsMutFn(func(options *policy.ClientOptions) {
			options.Transport = &http.Client{Transport: loginAt{home}}
		}))
	if err != nil {
		return stop, err
	}
	if host := auth.CloudConfig.ActiveDirectoryAuthorityHost; !strings.HasPrefix(host, azure.url) {
		return stop, fmt.Errorf("discovered another authority than the emulator: %s", host)
	}
	azure.fresh = func() (peers.ClientFactory, error) {
		return peers.NewClientFactory(
			&config.ClientFactoryConfig, &config.ARMClientConfig, auth.CloudConfig, auth.GetAzIdentity())
	}
	azure.clients, err = azure.fresh()
	return stop, err
}

// loginAt sends what is meant for the public login host to the emulator.
type loginAt struct{ home *url.URL }

func (l loginAt) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host == "login.microsoftonline.com" {
		request = request.Clone(request.Context())
		request.URL.Host, request.Host = l.home.Host, l.home.Host
	}
	return http.DefaultTransport.RoundTrip(request)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, status int, code string) {
	t.Helper()
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		t.Fatalf("expected %d %s, got %v", status, code, err)
	}
	if answer.StatusCode != status || answer.ErrorCode != code {
		t.Fatalf("expected %d %s, got %d %s", status, code, answer.StatusCode, answer.ErrorCode)
	}
}

// disk makes a disk as the driver does and returns its id.
func disk(t *testing.T, name string) string {
	t.Helper()
	made, err := azure.clients.GetDiskClient().CreateOrUpdate(t.Context(), azure.group, name, armcompute.Disk{
		Location: to.Ptr(azure.location),
		Tags:     map[string]*string{"k8s-azure-created-by": to.Ptr("kubernetes-azure-dd")},
		SKU:      &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesStandardSSDLRS)},
		Properties: &armcompute.DiskProperties{
			CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
			DiskSizeGB:   to.Ptr[int32](4),
		},
	})
	must(t, err)
	if *made.Properties.ProvisioningState != "Succeeded" || *made.Properties.DiskSizeBytes != 4<<30 {
		t.Fatalf("disk %s: %+v", name, made.Properties)
	}
	return *made.ID
}

func machine(t *testing.T, name string) *armcompute.VirtualMachine {
	t.Helper()
	read, err := azure.clients.GetVirtualMachineClient().Get(t.Context(), azure.group, name, nil)
	must(t, err)
	return read
}

// write sends a machine as the driver does: its location and the whole list of data disks.
func write(t *testing.T, name string, disks []*armcompute.DataDisk) (*armcompute.VirtualMachine, error) {
	t.Helper()
	return azure.clients.GetVirtualMachineClient().CreateOrUpdate(t.Context(), azure.group, name, armcompute.VirtualMachine{
		Location:   to.Ptr(azure.location),
		Properties: &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: disks}},
	})
}

func attached(lun int32, id string) *armcompute.DataDisk {
	return &armcompute.DataDisk{
		Name:                    to.Ptr(id[strings.LastIndex(id, "/")+1:]),
		Lun:                     to.Ptr(lun),
		Caching:                 to.Ptr(armcompute.CachingTypesReadOnly),
		CreateOption:            to.Ptr(armcompute.DiskCreateOptionTypesAttach),
		ManagedDisk:             &armcompute.ManagedDiskParameters{ID: to.Ptr(id)},
		WriteAcceleratorEnabled: to.Ptr(false),
	}
}

func luns(vm *armcompute.VirtualMachine) map[int32]string {
	luns := map[int32]string{}
	for _, disk := range vm.Properties.StorageProfile.DataDisks {
		luns[*disk.Lun] = strings.ToLower(*disk.ManagedDisk.ID)
	}
	return luns
}

func TestADiskIsMadeReadGrownListedAndDeleted(t *testing.T) {
	disks := azure.clients.GetDiskClient()
	id := disk(t, "whole-life")
	read, err := disks.Get(t.Context(), azure.group, "whole-life")
	must(t, err)
	if *read.Properties.DiskState != armcompute.DiskStateUnattached || read.ManagedBy != nil {
		t.Fatalf("a new disk: %+v", read.Properties)
	}
	grown, err := disks.Patch(t.Context(), azure.group, "whole-life",
		armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{DiskSizeGB: to.Ptr[int32](8)}})
	must(t, err)
	if *grown.Properties.DiskSizeGB != 8 {
		t.Fatalf("grown: %+v", grown.Properties)
	}
	for _, name := range []string{"page-a", "page-b", "page-c"} {
		disk(t, name)
	}
	all, err := disks.List(t.Context(), azure.group) // two to a page
	must(t, err)
	seen := map[string]int{}
	for _, disk := range all {
		seen[strings.ToLower(*disk.ID)]++
	}
	if seen[strings.ToLower(id)] != 1 || len(seen) != len(all) || len(all) < 4 {
		t.Fatalf("listed: %v", seen)
	}
	must(t, disks.Delete(t.Context(), azure.group, "whole-life"))
	_, err = disks.Get(t.Context(), azure.group, "whole-life")
	refused(t, err, http.StatusNotFound, "ResourceNotFound")
	must(t, disks.Delete(t.Context(), azure.group, "whole-life"))
}

func TestTheDriversWritesAttachAndDetach(t *testing.T) {
	first, second := disk(t, "first"), disk(t, "second")
	before := machine(t, "node-0")
	after, err := write(t, "node-0", []*armcompute.DataDisk{attached(0, first), attached(3, second)})
	must(t, err)
	// The driver looks for its LUN in this answer and reads nothing again.
	if have := luns(after); have[0] != strings.ToLower(first) || have[3] != strings.ToLower(second) {
		t.Fatalf("attached: %v", have)
	}
	if *after.Properties.HardwareProfile.VMSize != *before.Properties.HardwareProfile.VMSize ||
		after.Properties.NetworkProfile == nil || after.Properties.StorageProfile.OSDisk == nil {
		t.Fatal("what the body leaves out has not stayed")
	}
	held, err := azure.clients.GetDiskClient().Get(t.Context(), azure.group, "first")
	must(t, err)
	if held.ManagedBy == nil || !strings.EqualFold(*held.ManagedBy, *after.ID) ||
		*held.Properties.DiskState != armcompute.DiskStateAttached {
		t.Fatalf("an attached disk: %v %v", held.ManagedBy, *held.Properties.DiskState)
	}
	refused(t, azure.clients.GetDiskClient().Delete(t.Context(), azure.group, "first"), http.StatusConflict, "OperationNotAllowed")
	_, err = write(t, "node-1", []*armcompute.DataDisk{attached(0, first)})
	refused(t, err, http.StatusConflict, "ConflictingUserInput")

	// Elements as they were read go back whole, with one marked.
	list := machine(t, "node-0").Properties.StorageProfile.DataDisks
	list[0].ToBeDetached = to.Ptr(true)
	after, err = write(t, "node-0", list)
	must(t, err)
	if have := luns(after); len(have) != 1 || have[3] != strings.ToLower(second) {
		t.Fatalf("after a detach: %v", have)
	}
	list = machine(t, "node-0").Properties.StorageProfile.DataDisks
	list[0].ToBeDetached = to.Ptr(true)
	list[0].DetachOption = to.Ptr(armcompute.DiskDetachOptionTypesForceDetach)
	after, err = write(t, "node-0", list)
	must(t, err)
	if have := luns(after); len(have) != 0 {
		t.Fatalf("after a forced detach: %v", have)
	}
	for _, name := range []string{"first", "second"} {
		must(t, azure.clients.GetDiskClient().Delete(t.Context(), azure.group, name))
	}
}

func TestTheEmptyWriteThatSettlesAMachineChangesNothing(t *testing.T) {
	id := disk(t, "stays")
	_, err := write(t, "node-1", []*armcompute.DataDisk{attached(7, id)})
	must(t, err)
	vms := azure.clients.GetVirtualMachineClient()
	// The driver sends {}. The emulator is started with the switch that lets a PUT do without location.
	_, err = vms.CreateOrUpdate(t.Context(), azure.group, "node-1", armcompute.VirtualMachine{})
	must(t, err)
	if have := luns(machine(t, "node-1")); have[7] != strings.ToLower(id) {
		t.Fatalf("after an empty write: %v", have)
	}
}

func TestAMissingDiskInTheListIsA404AndTheRestCanBeWrittenWithoutIt(t *testing.T) {
	id := disk(t, "exists")
	missing := strings.Replace(id, "/exists", "/missing", 1)
	_, err := write(t, "node-2", []*armcompute.DataDisk{attached(0, id), attached(1, missing)})
	refused(t, err, http.StatusNotFound, "NotFound")
	after, err := write(t, "node-2", []*armcompute.DataDisk{attached(0, id)})
	must(t, err)
	if have := luns(after); len(have) != 1 {
		t.Fatalf("attached: %v", have)
	}
}

func TestABodyWithAnOldEntityTagIsRefused(t *testing.T) {
	vms := azure.clients.GetVirtualMachineClient()
	old := machine(t, "node-3")
	_, err := vms.CreateOrUpdate(t.Context(), azure.group, "node-3",
		armcompute.VirtualMachine{Location: old.Location, Etag: old.Etag, Tags: map[string]*string{"a": to.Ptr("b")}})
	must(t, err)
	_, err = vms.CreateOrUpdate(t.Context(), azure.group, "node-3",
		armcompute.VirtualMachine{Location: old.Location, Etag: old.Etag, Tags: map[string]*string{"a": to.Ptr("c")}})
	refused(t, err, http.StatusPreconditionFailed, "PreconditionFailed")
	// A whole machine, as it was read, can be written back.
	_, err = vms.CreateOrUpdate(t.Context(), azure.group, "node-3", *machine(t, "node-3"))
	must(t, err)
}

func TestMachinesAreListedWithInstanceViewAndByScaleSet(t *testing.T) {
	vms := azure.clients.GetVirtualMachineClient()
	all, err := vms.List(t.Context(), azure.group)
	must(t, err)
	if len(all) != 5 {
		t.Fatalf("%d machines", len(all))
	}
	expanded, err := vms.ListVMInstanceView(t.Context(), azure.group)
	must(t, err)
	if len(expanded) != 5 || expanded[4].Properties.InstanceView == nil {
		t.Fatalf("%d machines with instance view", len(expanded))
	}
	none, err := vms.ListVmssFlexVMsWithOutInstanceView(t.Context(), azure.group, "notexists")
	must(t, err)
	if len(none) != 0 {
		t.Fatalf("%d machines of a scale set that is not there", len(none))
	}
	view, err := vms.InstanceView(t.Context(), azure.group, "flex")
	must(t, err)
	var running bool
	for _, status := range view.Statuses {
		running = running || *status.Code == "PowerState/running"
	}
	if !running {
		t.Fatalf("statuses: %+v", view.Statuses)
	}
	_, err = vms.Get(t.Context(), azure.group, "none", nil)
	refused(t, err, http.StatusNotFound, "ResourceNotFound")
	_, err = vms.Get(t.Context(), "no-group", "none", nil)
	refused(t, err, http.StatusNotFound, "ResourceGroupNotFound")
}

func TestAGroupWithANetworkAndAnInterfaceIsMadeAndDeleted(t *testing.T) {
	const group = "cluster-network"
	groups := azure.clients.GetResourceGroupClient()
	_, err := groups.CreateOrUpdate(t.Context(), group, armresources.ResourceGroup{Location: to.Ptr(azure.location)})
	must(t, err)
	networks := azure.clients.GetVirtualNetworkClient()
	network, err := networks.CreateOrUpdate(t.Context(), group, "network", armnetwork.VirtualNetwork{
		Location: to.Ptr(azure.location),
		Properties: &armnetwork.VirtualNetworkPropertiesFormat{
			AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{to.Ptr("10.1.0.0/16")}},
			Subnets: []*armnetwork.Subnet{{
				Name:       to.Ptr("nodes"),
				Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: to.Ptr("10.1.0.0/24")},
			}},
		},
	})
	must(t, err)
	if *network.Properties.ProvisioningState != armnetwork.ProvisioningStateSucceeded {
		t.Fatalf("network: %v", *network.Properties.ProvisioningState)
	}
	interfaces := azure.clients.GetInterfaceClient()
	one, err := interfaces.CreateOrUpdate(t.Context(), group, "one", armnetwork.Interface{
		Location: to.Ptr(azure.location),
		Properties: &armnetwork.InterfacePropertiesFormat{IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{
			Name: to.Ptr("first"),
			Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
				Subnet: &armnetwork.Subnet{ID: network.Properties.Subnets[0].ID},
			},
		}}},
	})
	must(t, err)
	if address := *one.Properties.IPConfigurations[0].Properties.PrivateIPAddress; address != "10.1.0.4" {
		t.Fatalf("address: %s", address)
	}
	// What was read goes back whole, under its entity tag; the tag is good for one write.
	read, err := networks.Get(t.Context(), group, "network", nil)
	must(t, err)
	_, err = networks.CreateOrUpdate(t.Context(), group, "network", *read)
	must(t, err)
	_, err = networks.CreateOrUpdate(t.Context(), group, "network", *read)
	refused(t, err, http.StatusPreconditionFailed, "PreconditionFailed")
	refused(t, networks.Delete(t.Context(), group, "network"), http.StatusBadRequest, "InUseSubnetCannotBeDeleted")
	must(t, interfaces.Delete(t.Context(), group, "one"))
	must(t, groups.Delete(t.Context(), group))
	_, err = groups.Get(t.Context(), group)
	refused(t, err, http.StatusNotFound, "ResourceGroupNotFound")
}

func TestAThrottledReadIsNotSentAgainBeforeItsTime(t *testing.T) {
	control(t, http.MethodPost, "/_emulator/incidents", `{"match":{"method":"GET","path":"*/disks/throttled"},
		"then":{"status":429,"retryAfter":600,"code":"TooManyRequests"}}`).Body.Close()
	// The breaker is a client's own: a fresh one leaves the other tests alone.
	factory, err := azure.fresh()
	must(t, err)
	// The library goes on trying for a minute without sending anything; a few seconds of that are enough.
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		_, err = factory.GetDiskClient().Get(ctx, azure.group, "throttled")
		cancel()
		if err == nil {
			t.Fatal("a throttled read succeeded")
		}
	}
	answer := control(t, http.MethodGet, "/_emulator/calls", "")
	defer answer.Body.Close()
	var calls []struct{ Path string }
	must(t, json.NewDecoder(answer.Body).Decode(&calls))
	sent := 0
	for _, call := range calls {
		if strings.HasSuffix(call.Path, "/disks/throttled") {
			sent++
		}
	}
	if sent != 1 {
		t.Fatalf("%d requests were sent", sent)
	}
}

// control speaks to the emulator's control interface.
func control(t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, azure.url+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	if answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
	return answer
}
