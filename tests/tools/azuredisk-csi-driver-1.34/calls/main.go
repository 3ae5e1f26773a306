// Command calls is a workload for a CSI driver of disks: it makes a disk, attaches, detaches, expands and deletes it, and
// makes one that Azure refuses once.
//
//	calls SOCKET NODE
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const gib = int64(1) << 30

// patience is for one call with its repetitions.
const patience = 5 * time.Minute

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(socket, node string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	driver := csi.NewControllerClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	create := func(name, sku string) (string, error) {
		answer, err := driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name:               name,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: 4 * gib},
			VolumeCapabilities: []*csi.VolumeCapability{capability},
			Parameters:         map[string]string{"skuName": sku},
		})
		return answer.GetVolume().GetVolumeId(), err
	}
	// Azure refuses the first write of a disk.
	if _, err := create("pvc-refused", "StandardSSD_LRS"); status.Code(err) == codes.OK {
		return fmt.Errorf("the disk that Azure refuses was made")
	}
	volume, err := create("pvc-made", "Premium_LRS")
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: capability}
	if _, err := driver.ControllerPublishVolume(ctx, publish); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	unpublish := &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node}
	if _, err := driver.ControllerUnpublishVolume(ctx, unpublish); err != nil {
		return fmt.Errorf("unpublish: %w", err)
	}
	expand := &csi.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * gib}, VolumeCapability: capability,
	}
	if _, err := driver.ControllerExpandVolume(ctx, expand); err != nil {
		return fmt.Errorf("expand: %w", err)
	}
	if _, err := driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}
