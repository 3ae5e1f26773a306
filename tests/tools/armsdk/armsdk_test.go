// Package armsdk drives the emulator with the official Azure SDK for Go, the one the Go drivers use.
//
// LAZULI_BIN names the binary to start. The SDK keeps its defaults: its sign-in with authority
// validation over TLS, its retries, its pollers. Only the addresses and the certificate are ours.
package armsdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"lazuli/tests/emulator"
)

const (
	group    = "lazuli"
	machine  = "node-0"
	location = "westeurope"
)

// azureCloud is a running emulator and a signed-in set of clients.
type azureCloud struct {
	disks    *armcompute.DisksClient
	machines *armcompute.VirtualMachinesClient
}

func start(t *testing.T) azureCloud {
	t.Helper()
	folder := t.TempDir()
	log, err := os.Create(filepath.Join(folder, "emulator.log"))
	must(t, err)
	running, err := emulator.Start(folder, log, "--latency", "none")
	must(t, err)
	t.Cleanup(running.Stop)

	var settings struct {
		TenantID, SubscriptionID, AADClientID, AADClientSecret string
	}
	text, err := os.ReadFile(running.Config)
	must(t, err)
	must(t, json.Unmarshal(text, &settings))
	authority, err := os.ReadFile(running.CA)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)

	options := policy.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: running.URL,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: running.URL, Audience: "https://management.azure.com"},
			},
		},
		Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
	}
	credential, err := azidentity.NewClientSecretCredential(
		settings.TenantID, settings.AADClientID, settings.AADClientSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	must(t, err)
	clients, err := armcompute.NewClientFactory(settings.SubscriptionID, credential, &arm.ClientOptions{
		ClientOptions: options,
		// The emulator registers no resource providers: they are all there.
		DisableRPRegistration: true,
	})
	must(t, err)
	return azureCloud{disks: clients.NewDisksClient(), machines: clients.NewVirtualMachinesClient()}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// done polls an operation to its end, as often as the emulator allows.
func done[T any](t *testing.T, poller *runtime.Poller[T], err error) (T, error) {
	t.Helper()
	if err != nil {
		var none T
		return none, err
	}
	return poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
}

func (a azureCloud) disk(t *testing.T, name string) string {
	t.Helper()
	poller, err := a.disks.BeginCreateOrUpdate(t.Context(), group, name, armcompute.Disk{
		Location: to.Ptr(location),
		SKU:      &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesPremiumLRS)},
		Properties: &armcompute.DiskProperties{
			CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
			DiskSizeGB:   to.Ptr[int32](4),
		},
	}, nil)
	created, err := done(t, poller, err)
	must(t, err)
	if *created.Properties.ProvisioningState != "Succeeded" || *created.Properties.DiskSizeBytes != 4<<30 {
		t.Fatalf("disk %s: %+v", name, created.Properties)
	}
	return *created.ID
}

func (a azureCloud) luns(t *testing.T) map[int32]string {
	t.Helper()
	read, err := a.machines.Get(t.Context(), group, machine, nil)
	must(t, err)
	luns := map[int32]string{}
	for _, disk := range read.Properties.StorageProfile.DataDisks {
		luns[*disk.Lun] = strings.ToLower(*disk.ManagedDisk.ID)
	}
	return luns
}

// write sends the whole data-disk array, as the Go drivers do.
func (a azureCloud) write(t *testing.T, disks []*armcompute.DataDisk, etag *string) error {
	t.Helper()
	poller, err := a.machines.BeginCreateOrUpdate(t.Context(), group, machine, armcompute.VirtualMachine{
		Location:   to.Ptr(location),
		Properties: &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: disks}},
	}, &armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfMatch: etag})
	_, err = done(t, poller, err)
	return err
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

func TestDisksLiveAttachAndDetachWithTheWritesOfTheGoDrivers(t *testing.T) {
	azure := start(t)
	first, second := azure.disk(t, "first"), azure.disk(t, "second")
	read, err := azure.machines.Get(t.Context(), group, machine, nil)
	must(t, err)

	attached := func(lun int32, id string) *armcompute.DataDisk {
		return &armcompute.DataDisk{
			Lun: to.Ptr(lun), CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach),
			Caching:     to.Ptr(armcompute.CachingTypesReadOnly),
			ManagedDisk: &armcompute.ManagedDiskParameters{ID: to.Ptr(id)},
		}
	}
	must(t, azure.write(t, []*armcompute.DataDisk{attached(0, first), attached(5, second)}, read.Etag))
	if luns := azure.luns(t); luns[0] != strings.ToLower(first) || luns[5] != strings.ToLower(second) {
		t.Fatalf("attached: %v", luns)
	}
	refused(t, azure.write(t, []*armcompute.DataDisk{attached(0, first)}, read.Etag), 412, "PreconditionFailed")

	poller, err := azure.disks.BeginDelete(t.Context(), group, "first", nil)
	_, err = done(t, poller, err)
	refused(t, err, 409, "OperationNotAllowed")

	leaving := attached(0, first)
	leaving.ToBeDetached = to.Ptr(true)
	must(t, azure.write(t, []*armcompute.DataDisk{leaving, attached(5, second)}, nil))
	if luns := azure.luns(t); len(luns) != 1 || luns[5] != strings.ToLower(second) {
		t.Fatalf("after the detach of one: %v", luns)
	}
	must(t, azure.write(t, []*armcompute.DataDisk{}, nil))
	if luns := azure.luns(t); len(luns) != 0 {
		t.Fatalf("an empty array detaches all: %v", luns)
	}
	for _, name := range []string{"first", "second"} {
		poller, err := azure.disks.BeginDelete(t.Context(), group, name, nil)
		_, err = done(t, poller, err)
		must(t, err)
	}
	_, err = azure.disks.Get(t.Context(), group, "first", nil)
	refused(t, err, 404, "ResourceNotFound")
}

func TestDisksAttachAndDetachByTheirOwnAction(t *testing.T) {
	azure := start(t)
	disk := azure.disk(t, "by-action")
	act := func(attach []*armcompute.DataDisksToAttach, detach []*armcompute.DataDisksToDetach) error {
		poller, err := azure.machines.BeginAttachDetachDataDisks(t.Context(), group, machine,
			armcompute.AttachDetachDataDisksRequest{DataDisksToAttach: attach, DataDisksToDetach: detach}, nil)
		_, err = done(t, poller, err)
		return err
	}
	must(t, act([]*armcompute.DataDisksToAttach{{DiskID: to.Ptr(disk), Lun: to.Ptr[int32](7)}}, nil))
	if luns := azure.luns(t); luns[7] != strings.ToLower(disk) {
		t.Fatalf("attached: %v", luns)
	}
	must(t, act(nil, []*armcompute.DataDisksToDetach{{DiskID: to.Ptr(disk)}}))
	if luns := azure.luns(t); len(luns) != 0 {
		t.Fatalf("detached: %v", luns)
	}
	refused(t, act([]*armcompute.DataDisksToAttach{{DiskID: to.Ptr(disk), Lun: to.Ptr[int32](64)}}, nil), 400, "InvalidParameter")
}

func TestListsGiveEveryDiskOnce(t *testing.T) {
	azure := start(t)
	want := map[string]bool{}
	for _, name := range []string{"a", "b", "c"} {
		want[strings.ToLower(azure.disk(t, "list-"+name))] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for pager := azure.disks.NewListByResourceGroupPager(group, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		must(t, err)
		for _, disk := range page.Value {
			delete(want, strings.ToLower(*disk.ID))
		}
	}
	if len(want) != 0 {
		t.Fatalf("not listed: %v", want)
	}
}
