// localkube is every Kubernetes server binary, etcd, kubectl and a made-up GPU plugin in one executable:
// one link instead of seven, a third of the size. The name it is called by (a symlink), or else the first argument, chooses.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// A command takes its arguments (the first is its own name) and returns the exit code.
type command func(args []string) int

var commands = map[string]command{
	"etcd":                    runEtcd,
	"kube-apiserver":          server(apiserver.NewAPIServerCommand),
	"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 server(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              server(proxy.NewProxyCommand),
	"kubectl":                 runKubectl,
	"fake-device-plugin":      runFakeDevicePlugin,
}

func server(build func() *cobra.Command) command {
	return func(args []string) int {
		cmd := build()
		cmd.SetArgs(args[1:])
		return cli.Run(cmd)
	}
}

func runEtcd(args []string) int {
	etcdmain.Main(args)
	return 0
}

func runKubectl(args []string) int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it the way kubectl does, and exits
	}
	return 0
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if commands[name] == nil && len(args) > 1 {
		name, args = args[1], args[1:]
	}
	run := commands[name]
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: localkube COMMAND [flags]; COMMAND is one of", slices.Sorted(maps.Keys(commands)))
		os.Exit(2)
	}
	os.Args = append([]string{name}, args[1:]...) // kubectl and klog read the global
	os.Exit(run(os.Args))
}
