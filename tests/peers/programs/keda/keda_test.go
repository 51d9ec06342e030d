// Package peer runs courses of polls and questions through KEDA itself.
//
// Its executor, its fallback, its formulas and the API objects that they keep their state in are the real ones, in a
// synctest bubble, so that hours pass in seconds. The loop around them (pkg/scaling/scale_handler.go) cannot be had
// without all scalers of KEDA and the clouds' libraries; what it does with one poll or question is told here once more.
//
//	KEDA_COURSES=courses.json KEDA_OUTCOMES=outcomes.json ./keda.test
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/fallback"
	"github.com/kedacore/keda/v2/pkg/scaling/executor"
)

type course struct {
	Object   object  `json:"object"`
	Replicas int32   `json:"replicas"`
	Events   []event `json:"events"`
}

type object struct {
	CooldownS        int32      `json:"cooldown_s"`
	InitialCooldownS int32      `json:"initial_cooldown_s"`
	Min              int32      `json:"min_replicas"`
	Idle             *int32     `json:"idle_replicas"`
	Fallback         *stand     `json:"fallback"`
	Triggers         []trigger  `json:"triggers"`
	Modifiers        *modifiers `json:"modifiers"`
}

type stand struct {
	FailureThreshold int32  `json:"failure_threshold"`
	Replicas         int32  `json:"replicas"`
	Behavior         string `json:"behavior"`
}

type trigger struct {
	Name       *string          `json:"name"`
	Target     map[string]int64 `json:"target"`
	Activation float64          `json:"activation"`
	UseCached  bool             `json:"use_cached"`
	IgnoreNull bool             `json:"ignore_null"`
}

type modifiers struct {
	Formula    string  `json:"formula"`
	Target     string  `json:"target"`
	Activation float64 `json:"activation"`
	IsValue    bool    `json:"is_value"`
}

type event struct {
	NowNs    int64  `json:"now_ns"`
	Replicas *int32 `json:"replicas"`
	Ready    int    `json:"ready"`
	Raw      []raw  `json:"raw"`
	Asks     *int   `json:"asks"`
}

type raw struct {
	Word  string
	Value *float64 `json:"value"`
}

func (r *raw) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, &r.Word)
	}
	type plain raw
	return json.Unmarshal(text, (*plain)(r))
}

type poll struct {
	Replicas   int32 `json:"replicas"`
	IsActive   bool  `json:"is_active"`
	IsError    bool  `json:"is_error"`
	IsFallback bool  `json:"is_fallback"`
}

type outcome struct {
	Poll *poll  `json:"poll,omitempty"`
	Told *int64 `json:"told,omitempty"`
	Null bool   `json:"null,omitempty"`
}

var behaviors = map[string]string{"static": kedav1alpha1.FallbackBehaviorStatic, "current_replicas": kedav1alpha1.FallbackBehaviorCurrentReplicas,
	"current_replicas_if_higher": kedav1alpha1.FallbackBehaviorCurrentReplicasIfHigher, "current_replicas_if_lower": kedav1alpha1.FallbackBehaviorCurrentReplicasIfLower,
	"scaling_modifiers": kedav1alpha1.FallbackBehaviorScalingModifiers}

// world is one course: the cluster that KEDA sees, and what the loop around its parts keeps.
type world struct {
	course   course
	began    time.Time
	replicas int32
	ready    int
	client   client.Client
	scales   *scalefake.FakeScaleClient
	executor executor.ScaleExecutor
	// The object as the loop holds it, and the one that comes with the scalers; none: they are to be built.
	looped, built *kedav1alpha1.ScaledObject
	lock          sync.RWMutex
	formula       *vm.Program
	cached        map[int]record
}

type record struct {
	metrics []external_metrics.ExternalMetricValue
	err     error
}

var noAnswer = errors.New("no answer")

// counting lists as many ready pods as a course says.
type counting struct {
	client.Client
	w *world
}

func (c counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return c.Client.List(ctx, list, opts...)
	}
	for range c.w.ready {
		pods.Items = append(pods.Items, corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
	}
	return nil
}

func scaledObject(o object, created time.Time) *kedav1alpha1.ScaledObject {
	so := &kedav1alpha1.ScaledObject{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "space", CreationTimestamp: metav1.NewTime(created)},
		Spec: kedav1alpha1.ScaledObjectSpec{
			ScaleTargetRef: &kedav1alpha1.ScaleTarget{Name: "target"}, CooldownPeriod: &o.CooldownS, InitialCooldownPeriod: &o.InitialCooldownS,
			MinReplicaCount: &o.Min, IdleReplicaCount: o.Idle,
		},
		// Of a kind whose replicas are read through its scale.
		Status: kedav1alpha1.ScaledObjectStatus{ScaleTargetKind: "example.com/v1.Model", Conditions: *kedav1alpha1.GetInitializedConditions(),
			ScaleTargetGVKR: &kedav1alpha1.GroupVersionKindResource{Group: "example.com", Version: "v1", Kind: "Model", Resource: "models"}},
	}
	if f := o.Fallback; f != nil {
		so.Spec.Fallback = &kedav1alpha1.Fallback{FailureThreshold: f.FailureThreshold, Replicas: f.Replicas, Behavior: behaviors[f.Behavior]}
	}
	for _, each := range o.Triggers {
		one := kedav1alpha1.ScaleTriggers{Type: "prometheus", Name: ptr.Deref(each.Name, "")}
		so.Spec.Triggers = append(so.Spec.Triggers, one)
	}
	if m := o.Modifiers; m != nil {
		kind := v2.AverageValueMetricType
		if m.IsValue {
			kind = v2.ValueMetricType
		}
		so.Spec.Advanced = &kedav1alpha1.AdvancedConfig{ScalingModifiers: kedav1alpha1.ScalingModifiers{
			Formula: m.Formula, Target: m.Target, ActivationTarget: fmt.Sprint(m.Activation), MetricType: kind}}
	}
	return so
}

func newWorld(c course) (*world, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kedav1alpha1.AddToScheme, corev1.AddToScheme, v2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	w := &world{course: c, began: time.Now(), replicas: c.Replicas, cached: map[int]record{}}
	so := scaledObject(c.Object, w.began)
	if c.Object.Modifiers != nil {
		var err error
		if w.formula, err = kedav1alpha1.ValidateAndCompileScalingModifiers(so.DeepCopy()); err != nil {
			return nil, err
		}
	}
	w.looped = so.DeepCopy()
	w.client = counting{clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(so).WithStatusSubresource(so).Build(), w}
	w.scales = &scalefake.FakeScaleClient{}
	w.scales.AddReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "target", Namespace: "space"},
			Spec: autoscalingv1.ScaleSpec{Replicas: w.replicas}, Status: autoscalingv1.ScaleStatus{Selector: "app=target"}}, nil
	})
	w.scales.AddReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		scale := action.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		w.replicas = scale.Spec.Replicas
		return true, scale, nil
	})
	w.executor = executor.NewScaleExecutor(w.client, w.scales, scheme, events.NewFakeRecorder(10_000))
	return w, nil
}

func name(place int) string { return fmt.Sprintf("s%d-prometheus", place) }

// value is what the Prometheus scaler makes of an answer, and whether it is above the activation.
func (w *world) value(place int, r raw) ([]external_metrics.ExternalMetricValue, bool, error) {
	t := w.course.Object.Triggers[place]
	value := 0.0
	switch {
	case r.Word == "failed", r.Word == "absent" && !t.IgnoreNull:
		return nil, false, noAnswer
	case r.Value != nil:
		value = *r.Value
	}
	quantity := resource.MustParse(fmt.Sprintf("%.3f", math.Max(0, value)))
	return []external_metrics.ExternalMetricValue{{MetricName: name(place), Value: quantity}}, value > t.Activation, nil
}

func (w *world) spec(place int) v2.MetricSpec {
	target := v2.MetricTarget{}
	for kind, milli := range w.course.Object.Triggers[place].Target {
		quantity := resource.MustParse(fmt.Sprintf("%.3f", float64(milli)/1000))
		if kind == "value" {
			target.Type, target.Value = v2.ValueMetricType, &quantity
		} else {
			target.Type, target.AverageValue = v2.AverageValueMetricType, &quantity
		}
	}
	return v2.MetricSpec{Type: v2.ExternalMetricSourceType, External: &v2.ExternalMetricSource{Metric: v2.MetricIdentifier{Name: name(place)}, Target: target}}
}

func (w *world) withFallback(so *kedav1alpha1.ScaledObject, place int, metrics []external_metrics.ExternalMetricValue, err error) ([]external_metrics.ExternalMetricValue, bool, error) {
	handler := fallback.ScaledObjectHandler{Ctx: context.Background(), KubeClient: w.client, ScaleClient: w.scales, UpdateLock: &w.lock, ScaledObject: so}
	return fallback.GetMetricsWithFallback(handler, metrics, err, name(place), w.spec(place))
}

func (w *world) fresh() *kedav1alpha1.ScaledObject {
	so := &kedav1alpha1.ScaledObject{}
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: "space", Name: "one"}, so); err != nil {
		panic(err)
	}
	return so
}

// composite is what pkg/scaling/modifiers makes of the metrics, in thousandths.
func (w *world) composite(so *kedav1alpha1.ScaledObject, metrics map[int]external_metrics.ExternalMetricValue, stood []external_metrics.ExternalMetricValue) (int64, error) {
	if len(stood) > 0 {
		return stood[0].Value.MilliValue(), nil
	}
	data := map[string]any{}
	for place, metric := range metrics {
		data[*w.course.Object.Triggers[place].Name] = metric.Value.AsApproximateFloat64()
		health, known := so.Status.Health[metric.MetricName]
		if so.FallbackScalingModifiers() && known && health.NumberOfFailures != nil && *health.NumberOfFailures > so.Spec.Fallback.FailureThreshold {
			data[*w.course.Object.Triggers[place].Name] = nil
		}
	}
	found, err := expr.Run(w.formula, data)
	if err != nil {
		return 0, err
	}
	if found == nil {
		if so.Spec.Fallback == nil {
			return 0, noAnswer
		}
		var target float64
		if _, err := fmt.Sscan(w.course.Object.Modifiers.Target, &target); err != nil {
			return 0, err
		}
		found = float64(so.Spec.Fallback.Replicas) * target
	}
	number, ok := found.(float64)
	if !ok {
		return 0, noAnswer
	}
	return int64(number * 1000), nil
}

func (w *world) poll(e event) outcome {
	*w.looped = *w.fresh()
	so := w.looped
	if w.built == nil {
		w.built = so
	}
	active, failed := false, false
	var stood []external_metrics.ExternalMetricValue
	metrics, records := map[int]external_metrics.ExternalMetricValue{}, map[int]record{}
	for place, each := range e.Raw {
		values, above, err := w.value(place, each)
		values, fell, err := w.withFallback(so, place, values, err)
		if fell {
			stood = append(stood, values...)
		}
		if len(values) > 0 {
			metrics[place] = values[0]
		}
		if w.course.Object.Triggers[place].UseCached {
			records[place] = record{values, err}
		}
		if err != nil {
			failed = true
		} else {
			active = active || fell || above
		}
	}
	if failed {
		w.built, w.cached = nil, map[int]record{}
	}
	if m := w.course.Object.Modifiers; m != nil {
		milli, err := w.composite(so, metrics, stood)
		var quantity resource.Quantity
		quantity.SetMilli(milli)
		active = !failed && err == nil && quantity.AsApproximateFloat64() > m.Activation
	}
	result := w.executor.RequestScale(context.Background(), so, active, failed, executor.ScaleExecutorOptions{})
	if result.LastActiveTime != nil {
		current := w.fresh()
		before := current.DeepCopy()
		current.SetStatusLastActiveTime(result.LastActiveTime)
		if err := w.client.Status().Patch(context.Background(), current, client.MergeFrom(before)); err != nil {
			panic(err)
		}
	}
	if len(records) > 0 {
		w.cached = records
	}
	return outcome{Poll: &poll{w.replicas, active, failed, len(stood) > 0}}
}

func (w *world) question(e event) outcome {
	if w.built == nil {
		w.built = w.fresh()
	}
	so := w.built
	places := []int{*e.Asks}
	if w.course.Object.Modifiers != nil {
		places = nil
		for place := range e.Raw {
			places = append(places, place)
		}
	}
	failed := false
	var stood []external_metrics.ExternalMetricValue
	metrics := map[int]external_metrics.ExternalMetricValue{}
	for _, place := range places {
		found, known := w.cached[place]
		if !known || !w.course.Object.Triggers[place].UseCached {
			found.metrics, _, found.err = w.value(place, e.Raw[place])
		}
		values, fell, err := w.withFallback(so, place, found.metrics, found.err)
		if fell {
			stood = append(stood, values...)
		}
		if len(values) > 0 {
			metrics[place] = values[0]
		}
		failed = failed || err != nil
	}
	if failed {
		w.built, w.cached = nil, map[int]record{}
		if len(stood) == 0 {
			return outcome{Null: true}
		}
	}
	if w.course.Object.Modifiers != nil {
		milli, err := w.composite(so, metrics, stood)
		if err != nil {
			return outcome{Null: true}
		}
		return outcome{Told: &milli}
	}
	value := metrics[places[0]].Value
	milli := value.MilliValue()
	return outcome{Told: &milli}
}

func run(c course) ([]outcome, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	var outcomes []outcome
	for _, each := range c.Events {
		time.Sleep(time.Until(w.began.Add(time.Duration(each.NowNs))))
		w.ready = each.Ready
		if each.Replicas != nil {
			w.replicas = *each.Replicas
		}
		if each.Asks != nil {
			outcomes = append(outcomes, w.question(each))
		} else {
			outcomes = append(outcomes, w.poll(each))
		}
	}
	return outcomes, nil
}

func TestCourses(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("KEDA_COURSES"))
	if err != nil {
		t.Fatal(err)
	}
	var courses []course
	if err := json.Unmarshal(text, &courses); err != nil {
		t.Fatal(err)
	}
	var all [][]outcome
	for place, each := range courses {
		synctest.Test(t, func(t *testing.T) {
			found, err := run(each)
			if err != nil {
				t.Fatalf("course %d: %v", place, err)
			}
			all = append(all, found)
		})
	}
	write(t, "KEDA_OUTCOMES", all)
}

type formula struct {
	Text   string     `json:"text"`
	Values []*float64 `json:"values"`
}

// TestFormulas evaluates formulas over triggers a, b and c; what is refused or fails is an error, what is nil is null.
func TestFormulas(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("KEDA_FORMULAS"))
	if err != nil {
		t.Skip("no formulas")
	}
	var formulas []formula
	if err := json.Unmarshal(text, &formulas); err != nil {
		t.Fatal(err)
	}
	all := make([]any, len(formulas))
	for place, each := range formulas {
		so := scaledObject(object{Modifiers: &modifiers{Formula: each.Text, Target: "1"}}, time.Now())
		data := map[string]any{}
		for k, value := range each.Values {
			name := string(rune('a' + k))
			so.Spec.Triggers = append(so.Spec.Triggers, kedav1alpha1.ScaleTriggers{Type: "prometheus", Name: name})
			data[name] = nil
			if value != nil {
				data[name] = *value
			}
		}
		program, err := kedav1alpha1.ValidateAndCompileScalingModifiers(so)
		if err != nil {
			all[place] = "refused"
			continue
		}
		found, err := expr.Run(program, data)
		number, ok := found.(float64)
		switch {
		case err != nil, found != nil && !ok:
			all[place] = "failed"
		case found != nil && (math.IsNaN(number) || math.IsInf(number, 0)):
			all[place] = fmt.Sprint(number)
		default:
			all[place] = found
		}
	}
	write(t, "KEDA_OUTCOMES", all)
}

func write(t *testing.T, where string, what any) {
	out, err := json.Marshal(what)
	if err == nil {
		err = os.WriteFile(os.Getenv(where), out, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
