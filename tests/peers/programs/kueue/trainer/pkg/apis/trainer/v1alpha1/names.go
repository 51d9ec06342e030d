// Package v1alpha1 stands in for Kubeflow's, whose generated code names a type that Kubernetes 1.37 has no more. Kueue
// asks it for these two names, to know which Jobs may wait for what; no TrainJob is looked at here.
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

const TrainJobKind = "TrainJob"

var SchemeGroupVersion = schema.GroupVersion{Group: "trainer.kubeflow.org", Version: "v1alpha1"}
