// Package peer runs courses of metrics through the HorizontalPodAutoscaler controller of Kubernetes itself.
//
// The controller is the real one, with its queue, its history and its clock; the clock is that of a synctest bubble, so
// that hours pass in seconds. Only its surroundings are stand-ins: scales, pods and metrics come from the courses.
//
//	HPA_COURSES=courses.json HPA_DECISIONS=decisions.json ./hpa.test
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

type course struct {
	Policy  policy `json:"policy"`
	Initial int32  `json:"initial"`
	Steps   []step `json:"steps"`
}

type policy struct {
	Min      int32     `json:"min_replicas"`
	Max      int32     `json:"max_replicas"`
	Metrics  []spec    `json:"metrics"`
	Behavior *behavior `json:"behavior"`
}

type spec struct {
	Source string           `json:"source"`
	Target map[string]int64 `json:"target"`
}

type behavior struct {
	Up   *rules `json:"up"`
	Down *rules `json:"down"`
}

type rules struct {
	StabilizationS *int32   `json:"stabilization_s"`
	Select         string   `json:"select"`
	Policies       []limit  `json:"policies"`
	Tolerance      *float64 `json:"tolerance"`
}

type limit struct {
	Kind    string `json:"kind"`
	Value   int32  `json:"value"`
	PeriodS int32  `json:"period_s"`
}

type step struct {
	NowNs    int64     `json:"now_ns"`
	Status   int32     `json:"status_replicas"`
	Pods     []pod     `json:"pods"`
	Readings []reading `json:"readings"`
}

type pod struct {
	Phase     string `json:"phase"`
	Ready     *bool  `json:"ready"`
	ReadyNs   int64  `json:"ready_since_ns"`
	StartedNs *int64 `json:"started_ns"`
	Deleted   bool   `json:"deleted"`
	Request   int64  `json:"request"`
}

type reading struct {
	Failed bool
	Values []int64       `json:"values"`
	PerPod []*podReading `json:"per_pod"`
}

func (r *reading) UnmarshalJSON(text []byte) error {
	if string(text) == `"failed"` {
		r.Failed = true
		return nil
	}
	type plain reading
	return json.Unmarshal(text, (*plain)(r))
}

type podReading struct {
	Value    int64 `json:"value"`
	AtNs     int64 `json:"at_ns"`
	WindowNs int64 `json:"window_ns"`
}

// What became of a course: when each sync was, from the first one, and the replicas after it.
type decisions struct {
	TimesNs  []int64 `json:"times_ns"`
	Replicas []int32 `json:"replicas"`
}

// world is all that the controller sees.
type world struct {
	courses  []course
	at       []int // the step of each course, -1 before the first
	replicas []int32
	began    []time.Time
	now      []time.Time
	out      []decisions
	done     int
	finished chan struct{}
}

func newWorld(courses []course) *world {
	n := len(courses)
	w := &world{courses: courses, at: make([]int, n), replicas: make([]int32, n), began: make([]time.Time, n),
		now: make([]time.Time, n), out: make([]decisions, n), finished: make(chan struct{})}
	for i, each := range courses {
		w.at[i], w.replicas[i] = -1, each.Initial
	}
	return w
}

// next begins the next sync of a course; the controller asks for the scale first, once.
func (w *world) next(i int) {
	now := time.Now()
	if w.at[i] < 0 {
		w.began[i] = now
	} else if w.at[i] < len(w.courses[i].Steps) {
		w.out[i].Replicas = append(w.out[i].Replicas, w.replicas[i])
	}
	w.at[i]++
	if w.at[i] < len(w.courses[i].Steps) {
		w.now[i] = now
		w.out[i].TimesNs = append(w.out[i].TimesNs, now.Sub(w.began[i]).Nanoseconds())
	} else if w.at[i] == len(w.courses[i].Steps) {
		w.done++
		if w.done == len(w.courses) {
			close(w.finished)
		}
	}
}

// step is what a course says of now; after its end its last step stays.
func (w *world) step(i int) *step {
	steps := w.courses[i].Steps
	return &steps[min(max(w.at[i], 0), len(steps)-1)]
}

// moment is a time of the course in the bubble's.
func (w *world) moment(i int, ns int64) time.Time {
	return w.now[i].Add(time.Duration(ns - w.step(i).NowNs))
}

func namespace(i int) string { return fmt.Sprintf("course-%d", i) }

func place(namespace string) int {
	var i int
	fmt.Sscanf(namespace, "course-%d", &i)
	return i
}

func podName(k int) string { return fmt.Sprintf("pod-%d", k) }

var noAnswer = errors.New("no answer")

func (w *world) perPod(i int, name string) (metrics.PodMetricsInfo, time.Time, error) {
	for m, spec := range w.courses[i].Policy.Metrics {
		if metricName(spec.Source, m) != name {
			continue
		}
		one := w.step(i).Readings[m]
		info := metrics.PodMetricsInfo{}
		for k, each := range one.PerPod {
			if each != nil {
				info[podName(k)] = metrics.PodMetric{Timestamp: w.moment(i, each.AtNs), Window: time.Duration(each.WindowNs), Value: each.Value}
			}
		}
		if one.Failed || len(info) == 0 { // as the client of the metrics APIs does
			break
		}
		return info, w.now[i], nil
	}
	return nil, time.Time{}, noAnswer
}

func metricName(source string, m int) string {
	switch source {
	case "cpu":
		return string(v1.ResourceCPU)
	case "resource":
		return string(v1.ResourceMemory)
	}
	return fmt.Sprintf("m%d", m)
}

func (w *world) values(i int, name string) ([]int64, error) {
	var m int
	fmt.Sscanf(name, "m%d", &m)
	one := w.step(i).Readings[m]
	if one.Failed || len(one.Values) == 0 {
		return nil, noAnswer
	}
	return one.Values, nil
}

func (w *world) GetResourceMetric(_ context.Context, name v1.ResourceName, namespace string, _ labels.Selector, _ string) (metrics.PodMetricsInfo, time.Time, error) {
	return w.perPod(place(namespace), string(name))
}

func (w *world) GetRawMetric(name string, namespace string, _ labels.Selector, _ labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	return w.perPod(place(namespace), name)
}

func (w *world) GetObjectMetric(name string, namespace string, _ *autoscalingv2.CrossVersionObjectReference, _ labels.Selector) (int64, time.Time, error) {
	values, err := w.values(place(namespace), name)
	if err != nil {
		return 0, time.Time{}, err
	}
	return values[0], time.Now(), nil
}

func (w *world) GetExternalMetric(name string, namespace string, _ labels.Selector) ([]int64, time.Time, error) {
	values, err := w.values(place(namespace), name)
	return values, time.Now(), err
}

// The pods of the moment, in place of an informer's.
func (w *world) Informer() cache.SharedIndexInformer { return synced{} }
func (w *world) Lister() corelisters.PodLister       { return lister{w} }

type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

type lister struct{ *world }

func (l lister) List(labels.Selector) ([]*v1.Pod, error) { return nil, noAnswer }
func (l lister) Pods(namespace string) corelisters.PodNamespaceLister {
	return pods{l.world, place(namespace)}
}

type pods struct {
	*world
	course int
}

func (p pods) Get(string) (*v1.Pod, error) { return nil, noAnswer }

func (p pods) List(labels.Selector) ([]*v1.Pod, error) {
	phases := map[string]v1.PodPhase{"pending": v1.PodPending, "running": v1.PodRunning, "failed": v1.PodFailed}
	var all []*v1.Pod
	for k, each := range p.step(p.course).Pods {
		one := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(k), Namespace: namespace(p.course)}}
		one.Status.Phase = phases[each.Phase]
		if each.Ready != nil {
			status := v1.ConditionFalse
			if *each.Ready {
				status = v1.ConditionTrue
			}
			one.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status,
				LastTransitionTime: metav1.Time{Time: p.moment(p.course, each.ReadyNs)}}}
		}
		if each.StartedNs != nil {
			one.Status.StartTime = &metav1.Time{Time: p.moment(p.course, *each.StartedNs)}
		}
		if each.Deleted {
			one.DeletionTimestamp = &metav1.Time{Time: p.now[p.course]}
		}
		amount := *resource.NewMilliQuantity(each.Request, resource.DecimalSI)
		one.Spec.Containers = []v1.Container{{Name: "one", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: amount, v1.ResourceMemory: amount}}}}
		all = append(all, one)
	}
	return all, nil
}

var deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

func autoscaler(i int, p policy) *autoscalingv2.HorizontalPodAutoscaler {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "hpa", Namespace: namespace(i), UID: types.UID(namespace(i))},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "target"},
			MinReplicas:    &p.Min, MaxReplicas: p.Max,
		},
	}
	for m, each := range p.Metrics {
		hpa.Spec.Metrics = append(hpa.Spec.Metrics, metric(each, m))
	}
	if p.Behavior != nil {
		hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: scaling(p.Behavior.Up), ScaleDown: scaling(p.Behavior.Down)}
	}
	defaults.SetDefaults_HorizontalPodAutoscaler(hpa)
	return hpa
}

func metric(s spec, m int) autoscalingv2.MetricSpec {
	target := autoscalingv2.MetricTarget{}
	if value, ok := s.Target["value"]; ok {
		target.Type, target.Value = autoscalingv2.ValueMetricType, resource.NewMilliQuantity(value, resource.DecimalSI)
	}
	if value, ok := s.Target["average_value"]; ok {
		target.Type, target.AverageValue = autoscalingv2.AverageValueMetricType, resource.NewMilliQuantity(value, resource.DecimalSI)
	}
	if value, ok := s.Target["utilization"]; ok {
		percent := int32(value)
		target.Type, target.AverageUtilization = autoscalingv2.UtilizationMetricType, &percent
	}
	id := autoscalingv2.MetricIdentifier{Name: metricName(s.Source, m), Selector: &metav1.LabelSelector{}}
	switch s.Source {
	case "pods":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: target}}
	case "external":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: target}}
	case "object":
		service := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "object"}
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{DescribedObject: service, Metric: id, Target: target}}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: v1.ResourceName(id.Name), Target: target}}
}

func scaling(r *rules) *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	selects := map[string]autoscalingv2.ScalingPolicySelect{"max": autoscalingv2.MaxChangePolicySelect,
		"min": autoscalingv2.MinChangePolicySelect, "disabled": autoscalingv2.DisabledPolicySelect}
	kinds := map[string]autoscalingv2.HPAScalingPolicyType{"pods": autoscalingv2.PodsScalingPolicy, "percent": autoscalingv2.PercentScalingPolicy}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationS}
	if r.Select != "" {
		which := selects[r.Select]
		out.SelectPolicy = &which
	}
	for _, each := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy{Type: kinds[each.Kind], Value: each.Value, PeriodSeconds: each.PeriodS})
	}
	if r.Tolerance != nil {
		quantity := resource.MustParse(fmt.Sprintf("%g", *r.Tolerance))
		out.Tolerance = &quantity
	}
	return out
}

// scales answers for the targets, and begins a sync whenever the controller asks for one.
func (w *world) scales() *scalefake.FakeScaleClient {
	client := &scalefake.FakeScaleClient{}
	client.AddReactor("get", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
		synctest.Wait() // until the status of the sync before is known to the controller's informer
		i := place(action.GetNamespace())
		w.next(i)
		return true, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "target", Namespace: namespace(i)},
			Spec:       autoscalingv1.ScaleSpec{Replicas: w.replicas[i]},
			Status:     autoscalingv1.ScaleStatus{Replicas: w.step(i).Status, Selector: "app=target-" + namespace(i)},
		}, nil
	})
	client.AddReactor("update", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
		scale := action.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		w.replicas[place(action.GetNamespace())] = scale.Spec.Replicas
		return true, scale, nil
	})
	return client
}

var _ coreinformers.PodInformer = &world{}

func TestCourses(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("HPA_COURSES"))
	if err != nil {
		t.Fatal(err)
	}
	var courses []course
	if err := json.Unmarshal(text, &courses); err != nil {
		t.Fatal(err)
	}
	// The usual ones wait by a clock that began outside of the bubble; that metrics fail is part of the courses.
	utilruntime.ErrorHandlers = nil
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(courses)
		var objects []runtime.Object
		for i, each := range courses {
			objects = append(objects, autoscaler(i, each.Policy))
		}
		client := fake.NewSimpleClientset(objects...)
		mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{deployment.GroupVersion()})
		mapper.Add(deployment, apimeta.RESTScopeNamespace)
		factory := informers.NewSharedInformerFactory(client, 0)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		controller := podautoscaler.NewHorizontalController(ctx, fake.NewSimpleClientset().CoreV1(), w.scales(), client.AutoscalingV2(), mapper, w,
			factory.Autoscaling().V2().HorizontalPodAutoscalers(), w, 15*time.Second, 5*time.Minute, 0.1, 5*time.Minute, 30*time.Second)
		factory.Start(ctx.Done())
		go controller.Run(ctx, 1)
		<-w.finished
		out, err := json.Marshal(w.out)
		if err == nil {
			err = os.WriteFile(os.Getenv("HPA_DECISIONS"), out, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // the controller's goroutines need not be waited for
	})
}
