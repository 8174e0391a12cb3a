package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeDevicePlugin is a kubelet device plugin whose devices are made up: a container gets /dev/null
// under the names that AMD's driver makes, and the ids of its devices in FAKE_GPU_IDS.
type fakeDevicePlugin struct {
	api.UnimplementedDevicePluginServer
	count         int
	unhealthyFile string // ids of unhealthy devices, one a line; a test writes it while the plugin runs
}

func (p *fakeDevicePlugin) devices() []*api.Device {
	content, _ := os.ReadFile(p.unhealthyFile) // no file: all are healthy
	unhealthy := strings.Fields(string(content))
	devices := make([]*api.Device, p.count)
	for i := range devices {
		devices[i] = &api.Device{
			ID:       fmt.Sprintf("gpu-%d", i),
			Health:   api.Healthy,
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}}},
		}
		if slices.Contains(unhealthy, devices[i].ID) {
			devices[i].Health = api.Unhealthy
		}
	}
	return devices
}

func (p *fakeDevicePlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *fakeDevicePlugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for sent := ""; stream.Context().Err() == nil; time.Sleep(200 * time.Millisecond) {
		devices := p.devices()
		if seen := fmt.Sprint(devices); seen != sent {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			sent = seen
		}
	}
	return nil
}

func (p *fakeDevicePlugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, allocate(container.DevicesIds))
	}
	return response, nil
}

func allocate(ids []string) *api.ContainerAllocateResponse {
	device := func(path string) *api.DeviceSpec {
		return &api.DeviceSpec{ContainerPath: path, HostPath: "/dev/null", Permissions: "rw"}
	}
	response := &api.ContainerAllocateResponse{
		Envs:    map[string]string{"FAKE_GPU_IDS": strings.Join(ids, ",")},
		Devices: []*api.DeviceSpec{device("/dev/kfd")},
	}
	for _, id := range ids {
		var n int
		fmt.Sscanf(id, "gpu-%d", &n)
		response.Devices = append(response.Devices, device(fmt.Sprintf("/dev/dri/renderD%d", 128+n)))
	}
	return response
}

// serve listens on the plugin's socket, registers with kubelet and returns when the socket is gone:
// a kubelet that starts empties the directory.
func (p *fakeDevicePlugin) serve(directory, resource string) error {
	name := strings.ReplaceAll(resource, "/", "_") + ".sock"
	socket := filepath.Join(directory, name)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	if err := register(filepath.Join(directory, "kubelet.sock"), name, resource); err != nil {
		return err
	}
	fmt.Println("registered", resource, p.count)
	for exists(socket) {
		time.Sleep(500 * time.Millisecond)
	}
	return nil
}

func register(kubelet, endpoint, resource string) error {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func runFakeDevicePlugin(args []string) int {
	plugin := &fakeDevicePlugin{}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	resource := flags.String("resource", "amd.com/gpu", "resource name")
	directory := flags.String("dir", api.DevicePluginPath, "kubelet's directory of device plugins")
	flags.IntVar(&plugin.count, "count", 8, "number of devices")
	flags.StringVar(&plugin.unhealthyFile, "unhealthy-file", "", "file with the ids of unhealthy devices, one a line")
	flags.Parse(args[1:])
	for ; ; time.Sleep(100 * time.Millisecond) {
		// Only once kubelet listens: it empties the directory before, and would dial a missing socket for a minute.
		if !exists(filepath.Join(*directory, "kubelet.sock")) {
			continue
		}
		if err := plugin.serve(*directory, *resource); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
