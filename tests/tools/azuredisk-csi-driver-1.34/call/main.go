// Command call passes requests to the controller of a CSI driver. Each line of its input is one: the name of the call, and
// the request as JSON. It prints a line for each: the answer as JSON, or the code and the message of the refusal.
//
//	call SOCKET
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// patience is for one call.
const patience = 5 * time.Minute

// messages gives a request and an answer of each call.
var messages = map[string]func() (proto.Message, proto.Message){
	"CreateVolume":              of[csi.CreateVolumeRequest, csi.CreateVolumeResponse](),
	"DeleteVolume":              of[csi.DeleteVolumeRequest, csi.DeleteVolumeResponse](),
	"ControllerModifyVolume":    of[csi.ControllerModifyVolumeRequest, csi.ControllerModifyVolumeResponse](),
	"ControllerPublishVolume":   of[csi.ControllerPublishVolumeRequest, csi.ControllerPublishVolumeResponse](),
	"CreateSnapshot":            of[csi.CreateSnapshotRequest, csi.CreateSnapshotResponse](),
	"DeleteSnapshot":            of[csi.DeleteSnapshotRequest, csi.DeleteSnapshotResponse](),
	"ListSnapshots":             of[csi.ListSnapshotsRequest, csi.ListSnapshotsResponse](),
	"ControllerExpandVolume":    of[csi.ControllerExpandVolumeRequest, csi.ControllerExpandVolumeResponse](),
	"ControllerUnpublishVolume": of[csi.ControllerUnpublishVolumeRequest, csi.ControllerUnpublishVolumeResponse](),
}

func of[Request, Answer any, R interface {
	*Request
	proto.Message
}, A interface {
	*Answer
	proto.Message
}]() func() (proto.Message, proto.Message) {
	return func() (proto.Message, proto.Message) { return R(new(Request)), A(new(Answer)) }
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		make, known := messages[name]
		if !known {
			return fmt.Errorf("there is no call %q", name)
		}
		request, answer := make()
		if err := protojson.Unmarshal([]byte(text), request); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := print(connection, name, request, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func print(connection *grpc.ClientConn, name string, request, answer proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var line []byte
	err := connection.Invoke(ctx, "/csi.v1.Controller/"+name, request, answer)
	if err != nil {
		refusal := status.Convert(err)
		line, err = json.Marshal(map[string]string{"code": refusal.Code().String(), "message": refusal.Message()})
	} else {
		line, err = protojson.Marshal(answer)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}
