// Kueue's manager for Jobs of Kubernetes: the parts that its own main (cmd/kueue) puts together, in its order, without
// what other kinds of jobs, other clusters and changing certificates need. That main takes four times as much to
// compile, and does not with packages of Kubernetes 1.37.
//
//	kueue -config FILE -kubeconfig FILE
package main

import (
	"flag"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuealpha "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	queuecache "sigs.k8s.io/kueue/pkg/cache/queue"
	schedulercache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs/job"
	"sigs.k8s.io/kueue/pkg/metrics"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/kubeversion"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

var (
	scheme = runtime.NewScheme()
	log    = ctrl.Log.WithName("setup")
)

func must(err error, what string) {
	if err != nil {
		log.Error(err, what)
		os.Exit(1)
	}
}

func main() {
	file := flag.String("config", "", "Kueue's configuration")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, resourceapi.AddToScheme, corev1.AddToScheme,
		kueue.AddToScheme, kueuev1beta1.AddToScheme, kueuealpha.AddToScheme,
		configv1beta1.AddToScheme, configapi.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}

	options, cfg, err := config.Load(scheme, *file)
	must(err, "configuration")
	must(config.LoadAndValidateFeatureGates("", cfg.FeatureGates).ToAggregate(), "feature gates")
	must(config.Validate(&cfg, scheme).ToAggregate(), "configuration")
	must(config.AddWebhookSettingsTo(&options, &cfg), "webhooks")
	options.Metrics = metricsserver.Options{BindAddress: cfg.Metrics.BindAddress}
	metrics.Register()

	rest := ctrl.GetConfigOrDie()
	rest.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(*cfg.ClientConnection.QPS, int(*cfg.ClientConnection.Burst))
	ctx := ctrl.SetupSignalHandler()
	manager, err := ctrl.NewManager(rest, options)
	must(err, "manager")

	formatter := resources.NewResourceFormatter()
	preemptions := expectations.New()
	cache := schedulercache.New(manager.GetClient(), schedulercache.WithResourceFormatter(formatter))
	requeuer := queuecache.NewRequeuer()
	must(manager.Add(requeuer), "requeuer")
	queues := queuecache.NewManager(manager.GetClient(), cache, requeuer,
		queuecache.WithPodsReadyRequeuingTimestamp(configapi.EvictionTimestamp),
		queuecache.WithResourceFormatter(formatter), queuecache.WithPreemptionExpectations(preemptions))

	must(indexer.Setup(ctx, manager.GetFieldIndexer()), "indexes")
	frameworks := jobframework.WithEnabledFrameworks(cfg.Integrations.Frameworks)
	must(jobframework.SetupIndexes(ctx, manager.GetFieldIndexer(), frameworks), "indexes of jobs")

	client, err := discovery.NewDiscoveryClientForConfig(rest)
	must(err, "discovery")
	version := kubeversion.NewServerVersionFetcher(client)
	must(manager.Add(version), "version")
	must(version.FetchServerVersion(), "version")

	ready := manager.GetWebhookServer().StartedChecker()
	must(manager.AddReadyzCheck("readyz", ready), "readiness")

	failed, err := core.SetupControllers(manager, queues, cache, &cfg, core.SetupControllersOpts{
		PreemptionExpectations: preemptions, ResourceFormatter: formatter,
	})
	must(err, "controller "+failed)
	must(jobframework.SetupControllers(ctx, manager, log, frameworks,
		jobframework.WithKubeServerVersion(version), jobframework.WithManagerName(constants.KueueName),
		jobframework.WithManagedJobsNamespaceSelector(labels.Everything()),
		jobframework.WithCache(cache), jobframework.WithQueues(queues)), "jobs")
	failed, err = webhooks.Setup(manager, nil)
	must(err, "webhook "+failed)

	go queues.CleanUpOnContext(ctx)
	go cache.CleanUpOnContext(ctx)
	must(manager.Add(scheduler.New(queues, cache, manager.GetClient(),
		manager.GetEventRecorder(constants.AdmissionName),
		scheduler.WithPodsReadyRequeuingTimestamp(configapi.EvictionTimestamp),
		scheduler.WithQuotaCheckStrategy(configapi.QuotaCheckBlockUndeclared),
		scheduler.WithPreemptionExpectations(preemptions),
		scheduler.WithResourceFormatter(formatter))), "scheduler")
	must(manager.Start(ctx), "manager")
}
