package dashboards

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const gib = 1 << 30

// Work does once what a cluster does all day: Services, Nodes, volumes and shares that come and go, Azure that
// throttles, and requests that are refused. round makes the names of one pass differ from those of the next.
func (f *Fleet) Work(round int) error {
	for _, one := range []struct {
		what string
		do   func(round int) error
	}{
		{"Services", f.services},
		{"disks", f.disks},
		{"file shares", f.shares},
		{"the node plugin", f.node},
		{"the key broker", f.stranger},
		{"the webhooks", f.review},
	} {
		if err := one.do(round); err != nil {
			return fmt.Errorf("%s: %w", one.what, err)
		}
	}
	return nil
}

func (f *Fleet) api(path string) string { return f.cluster + path }

// services makes Services that are served and one that is refused, and deletes one.
func (f *Fleet) services(round int) error {
	services := f.api("/api/v1/namespaces/default/services")
	service := func(name string, annotations map[string]string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": name, "annotations": annotations},
			"spec":     map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": 80}}}}
	}
	for _, name := range []string{"web", "gone"} {
		if _, err := f.send(http.MethodPost, services, service(fmt.Sprintf("%s-%d", name, round), nil)); err != nil {
			return err
		}
	}
	refused := service(fmt.Sprintf("refused-%d", round), map[string]string{
		"service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout": "for ever"})
	if _, err := f.send(http.MethodPost, services, refused); err != nil {
		return err
	}
	for _, name := range []string{"web", "gone"} {
		at := fmt.Sprintf("%s/%s-%d", services, name, round)
		if err := f.wait("address of a Service", func() error { return f.hasAddress(at) }); err != nil {
			return err
		}
	}
	gone := fmt.Sprintf("%s/gone-%d", services, round)
	if _, err := f.send(http.MethodDelete, gone, map[string]any{}); err != nil {
		return err
	}
	return f.wait("end of a Service", func() error {
		if _, err := f.send(http.MethodGet, gone, nil); err == nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

func (f *Fleet) hasAddress(service string) error {
	got, err := f.send(http.MethodGet, service, nil)
	if err != nil {
		return err
	}
	state, _ := got["status"].(map[string]any)
	balancer, _ := state["loadBalancer"].(map[string]any)
	if addresses, _ := balancer["ingress"].([]any); len(addresses) == 0 {
		return errors.New("it has none")
	}
	return nil
}

// disks lets disks come and go while Azure throttles; one is left attached; some are refused.
func (f *Fleet) disks(round int) error {
	connection, err := f.connect("up/controller.sock")
	if err != nil {
		return err
	}
	defer connection.Close()
	client := csi.NewControllerClient(connection)
	ctx, cancel := within()
	defer cancel()

	incident := map[string]any{"match": map[string]any{"operation": "disks.createOrUpdate"},
		"then": map[string]any{"status": 429, "retryAfter": 1}, "times": 2}
	if _, err := f.send(http.MethodPost, f.azure+"/_emulator/incidents", incident); err != nil {
		return err
	}
	// At once, so that requests share reads.
	lives, failed := 16, make(chan error)
	for at := range lives {
		go func() {
			kept, err := life(ctx, client, fmt.Sprintf("pvc-%d-%d", round, at), fmt.Sprintf("node-%d", at%2), at == 0)
			if kept != nil {
				err = f.tell(kept, fmt.Sprintf("node-%d", at%2))
			}
			failed <- err
		}()
	}
	for range lives {
		err = errors.Join(err, <-failed)
	}
	return errors.Join(err, f.refusals(ctx, client, round))
}

// tell writes what external-provisioner and external-attacher write of a volume that is attached.
func (f *Fleet) tell(volume *csi.Volume, node string) error {
	const driver = "disk.csi.azure.com"
	parts := strings.Split(volume.VolumeId, "/")
	name := parts[len(parts)-1]
	_, err := f.send(http.MethodPost, f.api("/api/v1/persistentvolumes"), map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"capacity": map[string]any{"storage": "8Gi"}, "accessModes": []any{"ReadWriteOnce"},
			"csi": map[string]any{"driver": driver, "volumeHandle": volume.VolumeId}}})
	if err != nil {
		return err
	}
	_, err = f.send(http.MethodPost, f.api("/apis/storage.k8s.io/v1/volumeattachments"), map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": map[string]any{"name": "csi-" + name},
		"spec":   map[string]any{"attacher": driver, "nodeName": node, "source": map[string]any{"persistentVolumeName": name}},
		"status": map[string]any{"attached": true, "attachmentMetadata": map[string]any{"LUN": "0"}}})
	return err
}

// life makes a disk and attaches it, and unless it is kept, detaches, grows and changes it, takes a snapshot, and deletes both.
// It gives the one that is kept.
func life(ctx context.Context, client csi.ControllerClient, name, node string, isKept bool) (*csi.Volume, error) {
	made, err := repeated(ctx, client.CreateVolume, newDisk(name, nil))
	if err != nil {
		return nil, err
	}
	id := made.Volume.VolumeId
	if _, err := repeated(ctx, client.ControllerPublishVolume, &csi.ControllerPublishVolumeRequest{VolumeId: id,
		VolumeContext: made.Volume.VolumeContext, NodeId: node, VolumeCapability: mounted}); err != nil {
		return nil, err
	}
	if isKept {
		return made.Volume, nil
	}
	if _, err := repeated(ctx, client.ControllerUnpublishVolume, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node}); err != nil {
		return nil, err
	}
	if _, err := repeated(ctx, client.ControllerExpandVolume, &csi.ControllerExpandVolumeRequest{VolumeId: id,
		VolumeCapability: mounted, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * gib}}); err != nil {
		return nil, err
	}
	if _, err := repeated(ctx, client.ControllerModifyVolume, &csi.ControllerModifyVolumeRequest{VolumeId: id,
		MutableParameters: map[string]string{"skuName": "Premium_LRS"}}); err != nil {
		return nil, err
	}
	taken, err := repeated(ctx, client.CreateSnapshot, &csi.CreateSnapshotRequest{Name: "snapshot-" + name, SourceVolumeId: id})
	if err != nil {
		return nil, err
	}
	if _, err := repeated(ctx, client.DeleteSnapshot, &csi.DeleteSnapshotRequest{SnapshotId: taken.Snapshot.SnapshotId}); err != nil {
		return nil, err
	}
	_, err = repeated(ctx, client.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: id})
	return nil, err
}

func newDisk(name string, parameters map[string]string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * gib},
		VolumeCapabilities: []*csi.VolumeCapability{mounted}, Parameters: parameters}
}

// refusals asks for disks that are refused: by the driver, by Azure for want of quota, and by Azure for want of a right.
func (f *Fleet) refusals(ctx context.Context, client csi.ControllerClient, round int) error {
	for _, one := range []struct {
		name       string
		parameters map[string]string
		azure      map[string]any
		code       codes.Code
	}{
		{"parameter", map[string]string{"colour": "blue"}, nil, codes.InvalidArgument},
		{"quota", nil, map[string]any{"status": 409, "code": "QuotaExceeded"}, codes.ResourceExhausted},
		{"right", nil, map[string]any{"status": 403, "code": "AuthorizationFailed"}, codes.PermissionDenied},
	} {
		if one.azure != nil {
			incident := map[string]any{"match": map[string]any{"operation": "disks.createOrUpdate"}, "then": one.azure}
			if _, err := f.send(http.MethodPost, f.azure+"/_emulator/incidents", incident); err != nil {
				return err
			}
		}
		_, err := repeated(ctx, client.CreateVolume, newDisk(fmt.Sprintf("pvc-%s-%d", one.name, round), one.parameters))
		if status.Code(err) != one.code {
			return fmt.Errorf("%s: the answer is %v, and not %v", one.name, err, one.code)
		}
	}
	return nil
}

// shares makes a file share.
func (f *Fleet) shares(round int) error {
	connection, err := f.connect("f.sock")
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := within()
	defer cancel()
	request := &csi.CreateVolumeRequest{Name: fmt.Sprintf("pvc-share-%d", round),
		CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * gib}, VolumeCapabilities: []*csi.VolumeCapability{mounted},
		Parameters: map[string]string{"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "default"}}
	_, err = repeated(ctx, csi.NewControllerClient(connection).CreateVolume, request)
	return err
}

// node asks a node plugin what kubelet asks, and for a share whose key nobody has.
func (f *Fleet) node(round int) error {
	disks, err := f.connect("up/node-0.sock")
	if err != nil {
		return err
	}
	defer disks.Close()
	ctx, cancel := within()
	defer cancel()
	if _, err := csi.NewNodeClient(disks).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); err != nil {
		return err
	}
	files, err := f.connect("nf.sock")
	if err != nil {
		return err
	}
	defer files.Close()
	place := f.path("staging")
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	_, err = csi.NewNodeClient(files).NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: fmt.Sprintf("group#account#share%d###default", round), StagingTargetPath: place, VolumeCapability: mounted})
	if err == nil {
		return errors.New("a share is mounted without a key")
	}
	return nil
}

// stranger asks the key broker without a token.
func (f *Fleet) stranger(int) error {
	if _, err := f.send(http.MethodPost, f.broker+"/v1/account-key", map[string]any{"volume": "group#account#share###default"}); err == nil {
		return errors.New("the key broker answers a stranger")
	}
	return nil
}

// review asks the webhooks about a volume and a claim that they leave as they are.
func (f *Fleet) review(int) error {
	for path, kind := range map[string]string{"/persistentvolumes": "PersistentVolume", "/persistentvolumeclaims": "PersistentVolumeClaim"} {
		object := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "data"}, "spec": map[string]any{}}
		review := map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
			"uid": "1", "operation": "CREATE", "kind": map[string]any{"group": "", "version": "v1", "kind": kind},
			"object": object, "oldObject": nil}}
		if _, err := f.send(http.MethodPost, f.reviewer+path, review); err != nil {
			return err
		}
	}
	return nil
}

// repeated calls again as the sidecars do, for what a repetition cures.
func repeated[Q, A any](ctx context.Context, call func(context.Context, Q, ...grpc.CallOption) (A, error), question Q) (A, error) {
	for {
		answer, err := call(ctx, question)
		switch status.Code(err) {
		case codes.Aborted, codes.Unavailable:
			time.Sleep(100 * time.Millisecond)
		default:
			return answer, err
		}
	}
}
