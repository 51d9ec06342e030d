// The parts of a Kubernetes control plane in one program, as Kubernetes's own packages make them:
//
//	kube etcd|apiserver|scheduler|controller-manager FLAG...
//
// One program, since three linked apart would hold the same 100 MB three times. The words after the first are the
// part's own flags.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Each makes its command only when asked: a command registers flags and feature gates of the whole process.
var parts = map[string]func() *cobra.Command{
	"apiserver":          apiserver.NewAPIServerCommand,
	"controller-manager": controllers.NewControllerManagerCommand,
	"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{"kube-" + name}, os.Args[2:]...)
	}
	if name == "etcd" {
		os.Args[0] = "etcd"
		etcdmain.Main(os.Args)
		return
	}
	part, known := parts[name]
	if !known {
		fmt.Fprintln(os.Stderr, "kube: the first word is etcd, apiserver, scheduler or controller-manager")
		os.Exit(2)
	}
	os.Exit(cli.Run(part()))
}
